//go:build root

package local

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/storagetest"
)

func TestLoopDevicesConform(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Storage { return realDisks(t, Config{}) })
}

func TestLoopDevicesOfAPoolConform(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Storage {
		d := realDisks(t, Config{Pool: 2, PoolBytes: 64 << 20})
		if err := d.refill(t.Context()); err != nil {
			t.Fatal(err)
		}
		return d
	})
}
