package guest_test

import (
	"context"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// lyingAgent answers questions about code as it likes.
type lyingAgent struct {
	guestv1connect.UnimplementedGuestServiceHandler
	answer *guestv1.AskKernelResponse
}

func (lyingAgent) Hello(context.Context, *connect.Request[guestv1.HelloRequest]) (*connect.Response[guestv1.HelloResponse], error) {
	return connect.NewResponse(&guestv1.HelloResponse{Capabilities: []string{string(sandbox.AgentKernelQuestions)}}), nil
}

func (a lyingAgent) AskKernel(context.Context, *connect.Request[guestv1.AskKernelRequest]) (*connect.Response[guestv1.AskKernelResponse], error) {
	return connect.NewResponse(a.answer), nil
}

func TestAnswersAboutCodeOfAHostileAgent(t *testing.T) {
	ask := func(answer *guestv1.AskKernelResponse) *guest.Client {
		_, handler := guestv1connect.NewGuestServiceHandler(lyingAgent{answer: answer})
		agent := httptest.NewServer(handler)
		t.Cleanup(agent.Close)
		c := guest.New(func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", agent.Listener.Addr().String())
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	completion := func(m *guestv1.CodeCompletion) *guestv1.AskKernelResponse {
		return &guestv1.AskKernelResponse{Answer: &guestv1.AskKernelResponse_Completion{Completion: m}}
	}
	for _, m := range []*guestv1.CodeCompletion{{CursorStart: -1}, {CursorEnd: 3}, {CursorStart: 2, CursorEnd: 1}} {
		if got, err := ask(completion(m)).CompleteCode(t.Context(), "k", "ab", 0); err == nil {
			t.Errorf("%v is taken as %+v", m, got)
		}
	}
	got, err := ask(completion(&guestv1.CodeCompletion{Matches: slices.Repeat([]string{"x"}, 100_000)})).CompleteCode(t.Context(), "k", "ab", 0)
	if err != nil || len(got.Matches.Texts) != kernel.MaxMatches || !got.Matches.More {
		t.Errorf("%d matches are taken, %v", len(got.Matches.Texts), err)
	}
	inspection, err := ask(&guestv1.AskKernelResponse{Answer: &guestv1.AskKernelResponse_Inspection{Inspection: &guestv1.CodeInspection{
		Found: true, Data: map[string]string{"text/plain": strings.Repeat("x", 1<<20), "text/html": strings.Repeat("x", 1<<20), "image/png": "x"},
	}}}).InspectCode(t.Context(), "k", "ab", 0, 0)
	if err != nil || len(inspection.Data) != 1 || len(inspection.Data["text/plain"]) > kernel.MaxInspection {
		t.Errorf("%d texts are taken, %v", len(inspection.Data), err)
	}
	check, err := ask(&guestv1.AskKernelResponse{Answer: &guestv1.AskKernelResponse_Completeness{Completeness: &guestv1.CodeCompleteness{
		Status: "incomplete", Indent: "\x1b[2J",
	}}}).CheckCode(t.Context(), "k", "ab")
	if err != nil || check != (kernel.Completeness{Status: "incomplete"}) {
		t.Errorf("%+v is taken, %v", check, err)
	}
	// The answer to another question is none.
	if check, err := ask(completion(&guestv1.CodeCompletion{})).CheckCode(t.Context(), "k", "ab"); err != nil || check.Status != "unknown" {
		t.Errorf("%+v is taken, %v", check, err)
	}
}
