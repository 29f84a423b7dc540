package admission

import (
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestDecideAdmission(t *testing.T) {
	caps := Caps{All: 3, PerTenant: 2, PerThread: 1}
	tests := []struct {
		name string
		caps Caps
		o    occupancy
		want error
	}{
		{"room", caps, occupancy{all: 2, tenant: 1, thread: 0, inThread: true}, nil},
		{"no bounds", Caps{}, occupancy{all: 1e6, tenant: 1e6, thread: 1e6, inThread: true}, nil},
		{"no thread", caps, occupancy{all: 2, tenant: 1, thread: 1}, nil},
		{"full", caps, occupancy{all: 3}, errs.Exhausted},
		{"the tenant is full", caps, occupancy{all: 2, tenant: 2}, errs.OverQuota},
		{"the thread is full", caps, occupancy{all: 1, tenant: 1, thread: 1, inThread: true}, errs.OverQuota},
		{"all are full: what the caller can do comes first", caps, occupancy{all: 3, tenant: 2}, errs.OverQuota},
	}
	for _, tt := range tests {
		err := decideAdmission(tt.caps, tt.o)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: decideAdmission = %v, want %v", tt.name, err, tt.want)
		}
		if err != nil && (errs.Public(err).RetryAfter <= 0 || errs.Public(err).Hint == "") {
			t.Errorf("%s: %v says neither when nor what to do", tt.name, err)
		}
	}
}
