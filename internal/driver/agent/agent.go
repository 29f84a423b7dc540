// Package agent is what drivers ask of the agent in a sandbox: single calls, each
// on a connection of its own. It believes nothing that comes back: whoever took
// the agent over can answer anything, and the daemon reads a little of it.
// What core asks, and streams, are package guest's.
package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
	"unicode"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// What an agent may answer to a single call.
const (
	maxAnswer       = 64 << 10
	maxAnswerHeader = 16 << 10
)

// Client asks one agent. It makes what a call needs when it is made: a start makes
// one call or two, and the generated client prepares all that there are.
type Client struct {
	http  *http.Client
	known *capability.Known
}

// New returns a client over dial, which gives fresh connections to the agent. What is
// known of the agent is the caller's to keep, for as long as the agent lives.
func New(dial func(ctx context.Context) (net.Conn, error), known *capability.Known) Client {
	transport := &http.Transport{
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
	return Client{&http.Client{
		Transport:     shortAnswers{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, known}
}

// CanCopy is Unsupported when the agent cannot be that of a copy, see
// [Client.IdentifyCopy].
func (c Client) CanCopy(ctx context.Context) error {
	err := c.known.Require(ctx, c.http, sandbox.AgentCopies)
	if err == nil || errors.Is(err, errs.Unsupported) {
		return err
	}
	return answered(ctx, err)
}

// call makes one call of the guest service, unless the agent lacks something for it.
func call[Request, Response any](ctx context.Context, c Client, procedure string, of *Request) (*Response, error) {
	if err := c.known.Call(ctx, c.http, procedure, of); err != nil {
		return nil, err
	}
	res, err := connect.NewClient[Request, Response](c.http, "http://guest"+procedure,
		connect.WithAcceptCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxAnswer)).
		CallUnary(ctx, connect.NewRequest(of))
	if err != nil {
		return nil, err
	}
	return res.Msg, nil
}

// Hello returns when the agent has answered.
func (c Client) Hello(ctx context.Context) error {
	res, err := call[guestv1.HelloRequest, guestv1.HelloResponse](ctx, c, guestv1connect.GuestServiceHelloProcedure, &guestv1.HelloRequest{})
	if err == nil {
		c.known.Note(res)
	}
	return err
}

// Shutdown has the agent end all processes but itself; those that are there after
// grace are killed.
func (c Client) Shutdown(ctx context.Context, grace time.Duration) error {
	_, err := call[guestv1.ShutdownRequest, guestv1.ShutdownResponse](ctx, c, guestv1connect.GuestServiceShutdownProcedure,
		&guestv1.ShutdownRequest{Grace: durationpb.New(grace), Stay: true})
	return err
}

// shortAnswers cuts answers off. The client has a bound of its own, but reads
// on to the end of what is longer, and an answer may have none.
type shortAnswers struct{ http.RoundTripper }

func (s shortAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = http.MaxBytesReader(nil, res.Body, maxAnswer+1)
	return res, nil
}

// Identify does the agent's part of [driver.Driver.Identify] and returns the host
// name that its kernel has then. was is the id of the identity that is replaced.
func (c Client) Identify(ctx context.Context, was string, is driver.Identity) (hostname string, err error) {
	res, err := c.identify(ctx, &guestv1.IdentifyRequest{Replaces: was, Id: is.ID, Env: is.Env})
	return res.GetHostname(), err
}

// IdentifyCopy is [Client.Identify] for a sandbox whose memory began as a copy of
// another's: its agent forgets the commands of that, gives kernels fresh random
// numbers, and proves itself by another secret from then on. The warnings say, in
// words, what shares its random numbers all the same. It may be repeated.
// Unsupported for an agent that cannot, which may have the identity then.
func (c Client) IdentifyCopy(ctx context.Context, was string, is driver.Identity, secret string) (hostname string, warnings []string, err error) {
	res, err := c.identify(ctx, &guestv1.IdentifyRequest{
		Replaces: was, Id: is.ID, Env: is.Env, Copied: &guestv1.Copied{Secret: secret},
	})
	if err == nil && !res.GetCopied() {
		err = errs.E(errs.Unsupported, "the sandbox's agent cannot be a copy of another").
			Hint("the sandbox that is copied was started by an older version: stop and start it")
	}
	return res.GetHostname(), legible(res.GetWarnings()), err
}

// Bounds of what an agent may warn of.
const (
	maxWarnings = 100
	maxWarning  = 1000 // bytes
)

// legible bounds what an agent says to people: programs inside chose their names.
func legible(texts []string) []string {
	var all []string
	for _, text := range texts[:min(len(texts), maxWarnings)] {
		text = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return unicode.ReplacementChar
			}
			return r
		}, text)
		all = append(all, strings.ToValidUTF8(text[:min(len(text), maxWarning)], ""))
	}
	return all
}

func (c Client) identify(ctx context.Context, to *guestv1.IdentifyRequest) (*guestv1.IdentifyResponse, error) {
	res, err := call[guestv1.IdentifyRequest, guestv1.IdentifyResponse](ctx, c, guestv1connect.GuestServiceIdentifyProcedure, to)
	switch {
	case err == nil:
		return res, nil
	case errors.Is(err, errs.Unsupported):
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	switch connect.CodeOf(err) {
	case connect.CodeAlreadyExists:
		return nil, errs.E(errs.Conflict, "the sandbox has another identity").Because(err)
	case connect.CodeUnimplemented:
		return nil, errs.E(errs.Unsupported, "the sandbox's agent cannot take another identity").
			Hint("the sandbox was started by an older version: stop and start it").Because(err)
	case connect.CodeUnavailable:
		return nil, errs.E(errs.Unavailable, "the sandbox's agent does not answer").Because(err)
	}
	return nil, fmt.Errorf("identify the sandbox: %w", err)
}
