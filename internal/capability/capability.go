// Package capability knows what each call to the agent in a sandbox needs of it, and
// asks agents what they have. A sandbox keeps the agent that it was started with, which
// may be older than the daemon: it skips fields that it does not know, and would answer
// that it did what it was asked. So a call that an agent lacks the capability for is
// refused before it is made, and a sandbox of an older agent goes on with what it can.
//
// Agents are not trusted: one that announces what it has not harms its own sandbox alone.
package capability

import (
	"context"
	"errors"
	"slices"
	"sync"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// baseURL is a name only: every connection is to the agent.
const baseURL = "http://guest"

// maxAnswer bounds what an agent may answer to a question of this package.
const maxAnswer = 1 << 20

// maxAnnounced bounds how many capabilities are read.
const maxAnnounced = 1000

// Known is what is known of one agent. Its zero value asks. It may be used from any
// goroutine, and is good for as long as the run of its sandbox.
type Known struct {
	mu    sync.Mutex
	asked bool                             // it has said who it is; guarded by mu
	has   map[sandbox.AgentCapability]bool // guarded by mu
}

// Note takes in what an agent has announced.
func (k *Known) Note(hello *guestv1.HelloResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(hello)
}

func (k *Known) note(hello *guestv1.HelloResponse) {
	announced := hello.GetCapabilities()
	announced = announced[:min(len(announced), maxAnnounced)]
	k.asked, k.has = true, make(map[sandbox.AgentCapability]bool)
	for _, c := range sandbox.AgentCapabilities() {
		if len(announced) > 0 || evidence[c] == nil {
			k.has[c] = slices.Contains(announced, string(c))
		}
	}
}

// Require is Unsupported, and says what to do, when the agent lacks a capability. The
// first call asks the agent over via; an error of that is returned as it is.
func (k *Known) Require(ctx context.Context, via connect.HTTPClient, c sandbox.AgentCapability) error {
	if c == "" {
		return nil
	}
	has, err := k.find(ctx, via, c)
	if err != nil || has {
		return err
	}
	return errs.E(errs.Unsupported, "the sandbox's agent is of an older version, which lacks: %s", words[c]).
		Hint("stop the sandbox and start it: it begins with the current agent, and its files stay")
}

func (k *Known) find(ctx context.Context, via connect.HTTPClient, c sandbox.AgentCapability) (has bool, err error) {
	k.mu.Lock()
	asked := k.asked
	k.mu.Unlock()
	if !asked {
		hello, err := ask[guestv1.HelloRequest, guestv1.HelloResponse](ctx, via, guestv1connect.GuestServiceHelloProcedure)
		if err != nil {
			return false, err
		}
		k.Note(hello)
	}
	k.mu.Lock()
	has, known := k.has[c]
	k.mu.Unlock()
	if known {
		return has, nil
	}
	if has, err = evidence[c](ctx, via); err != nil {
		return false, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.has[c] = has
	return has, nil
}

// evidence finds out, of agents of before there were announcements, whether they have a
// capability: by a call that came with it or later, and that changes nothing. What has
// none here such agents are taken to lack.
var evidence = map[sandbox.AgentCapability]func(context.Context, connect.HTTPClient) (bool, error){
	sandbox.AgentKernels:         knows[guestv1.ListKernelsRequest, guestv1.ListKernelsResponse](guestv1connect.GuestServiceListKernelsProcedure),
	sandbox.AgentContainedPaths:  knows[guestv1.UnkilledRequest, guestv1.UnkilledResponse](guestv1connect.GuestServiceUnkilledProcedure),
	sandbox.AgentUnkilled:        knows[guestv1.UnkilledRequest, guestv1.UnkilledResponse](guestv1connect.GuestServiceUnkilledProcedure),
	sandbox.AgentKernelQuestions: knows[guestv1.AskKernelRequest, guestv1.AskKernelResponse](guestv1connect.GuestServiceAskKernelProcedure),
	sandbox.AgentIdentity:        knows[guestv1.ListPortsRequest, guestv1.ListPortsResponse](guestv1connect.GuestServiceListPortsProcedure),
	sandbox.AgentPreparedKernels: knows[guestv1.ListPortsRequest, guestv1.ListPortsResponse](guestv1connect.GuestServiceListPortsProcedure),
	sandbox.AgentCopies:          knows[guestv1.ListPortsRequest, guestv1.ListPortsResponse](guestv1connect.GuestServiceListPortsProcedure),
	sandbox.AgentPorts:           knows[guestv1.ListPortsRequest, guestv1.ListPortsResponse](guestv1connect.GuestServiceListPortsProcedure),
}

func knows[Request, Response any](procedure string) func(context.Context, connect.HTTPClient) (bool, error) {
	return func(ctx context.Context, via connect.HTTPClient) (bool, error) {
		_, err := ask[Request, Response](ctx, via, procedure)
		var answer *connect.Error
		switch {
		case err == nil:
			return true, nil
		case errors.As(err, &answer) && answer.Meta().Get("Cubby-Error-Kind") != "":
			return true, nil // it knows the call, and refuses this one
		case connect.CodeOf(err) == connect.CodeUnimplemented:
			return false, nil
		}
		return false, err
	}
}

// ask makes a call with an empty request.
func ask[Request, Response any](ctx context.Context, via connect.HTTPClient, procedure string) (*Response, error) {
	res, err := connect.NewClient[Request, Response](via, baseURL+procedure,
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxAnswer)).CallUnary(ctx, connect.NewRequest(new(Request)))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}
