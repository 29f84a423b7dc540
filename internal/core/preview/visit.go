package preview

import (
	"context"
	"net"

	"github.com/cubbyhq/cubby/internal/core/live"
)

// Dial opens a connection to the port. It may outlive the visit, for the next
// one: by itself it keeps the sandbox neither awake nor in use.
func (v *Visit) Dial(ctx context.Context) (net.Conn, error) {
	return live.Connect(ctx, v.run, v.port)
}

// GoesOn reports whether the sandbox goes on: nobody is ending it, and its agent is
// still there. A connection to a port ends in the same way when its program closes
// it and when the sandbox goes.
func (v *Visit) GoesOn(ctx context.Context) bool {
	if live.Ends(v.run) {
		return false // the agent may answer to its last moment
	}
	_, err := v.run.Guest.Hello(ctx)
	return err == nil
}

// Touch notes a use of this moment.
func (v *Visit) Touch(ctx context.Context) { v.run.Touch(ctx) }

// Rest lets the sandbox sleep although the visit goes on, as that of a connection
// over which nothing flows. From then on [Visit.Touch] alone is use.
func (v *Visit) Rest() { v.using() }

// Done ends the visit. It may be called more than once.
func (v *Visit) Done() {
	v.using()
	v.leave()
}
