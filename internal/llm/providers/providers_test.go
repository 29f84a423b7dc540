package providers

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/llm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func wantFault(t *testing.T, err error, want llm.Fault) *llm.Error {
	t.Helper()
	var e *llm.Error
	if !errors.As(err, &e) || e.Fault != want {
		t.Fatalf("the error is %v, want one of %s", err, want)
	}
	return e
}
