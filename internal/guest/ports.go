package guest

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Ports returns the ports of the sandbox's loopback that something listens on,
// by number, without those of the agent. Whether one is declared it does not
// know. Unsupported from an agent that cannot tell.
func (c *Client) Ports(ctx context.Context) ([]sandbox.Port, error) {
	res, err := c.rpc.ListPorts(ctx, connect.NewRequest(&guestv1.ListPortsRequest{}))
	if err != nil {
		return nil, fromWire(ctx, err)
	}
	var ports []sandbox.Port
	for _, m := range res.Msg.GetPorts() {
		if m.GetPort() > 1<<16-1 || sandbox.ValidatePort(int(m.GetPort())) != nil {
			continue
		}
		ports = append(ports, sandbox.Port{Port: int(m.GetPort()), Listening: true, Program: label(m.GetProgram()), PID: max(0, m.GetPid())})
	}
	byPort := func(a, b sandbox.Port) int { return cmp.Compare(a.Port, b.Port) }
	slices.SortStableFunc(ports, byPort)
	return slices.CompactFunc(ports, func(a, b sandbox.Port) bool { return a.Port == b.Port }), nil
}
