package core

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// CreateRequest asks for a sandbox.
type CreateRequest struct {
	ID string // "" generates one
	// Spec says what it shall be; zero fields take the defaults. ExecTimeout
	// and IdleTimeout are read from the pointers below, because 0 has a
	// meaning there.
	Spec        sandbox.Spec
	ExecTimeout *time.Duration // nil: the default; 0: none
	IdleTimeout *time.Duration // nil: the default; 0: never idle
	// IdempotencyKey makes a repeat of the same request return the first
	// one's sandbox.
	IdempotencyKey string
}

// Create makes a sandbox and returns when commands can run in it. When a step
// fails everything before it is undone and the row ends failed with the
// reason. Kinds: Invalid, NotFound (image), Conflict (the id is in use, or its
// kept disk belongs to somebody else), Exhausted (no room; with RetryAfter),
// Unsupported (isolation), Unavailable.
func (s *Service) Create(ctx context.Context, r CreateRequest) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errStub
}
