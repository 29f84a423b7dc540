package local

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/storagetest"
)

func TestPlainDirectoriesConform(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Storage { return plainDisks(t, Config{}) })
}
