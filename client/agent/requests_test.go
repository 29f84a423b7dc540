package agent_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/agent"
)

// TestRequests holds what each call sends, and that it reads the answer.
func TestRequests(t *testing.T) {
	const thread = `{"thread_id":"t","status":"interrupted","values":{"messages":[{"type":"human","content":"hi"}]},"interrupts":{"x":[{"id":"i","value":1}]}}`
	const state = `{"values":{"messages":[{"type":"human","content":[{"type":"text","text":"hi"}]}]},"next":[],"checkpoint":{"checkpoint_id":"c"},"tasks":[]}`
	tests := []struct {
		name, want, answer string
		do                 func(ctx context.Context, a *agent.Client) (any, error)
		good               func(got any) bool
	}{
		{"assistants", `POST /agent/assistants/search {"limit":3}`, `[{"assistant_id":"a"}]`,
			func(ctx context.Context, a *agent.Client) (any, error) { return a.Assistants(ctx, 3) },
			func(got any) bool { return got.([]agent.Assistant)[0].ID == "a" }},
		{"assistant", `GET /agent/assistants/agent `, `{"assistant_id":"a","graph_id":"agent"}`,
			func(ctx context.Context, a *agent.Client) (any, error) { return a.Assistant(ctx, agent.Graph) },
			func(got any) bool { return got.(agent.Assistant).GraphID == "agent" }},
		{"create", `POST /agent/threads {"thread_id":"t","if_exists":"do_nothing"}`, thread,
			func(ctx context.Context, a *agent.Client) (any, error) {
				return a.CreateThread(ctx, agent.NewThread{ID: "t", IfExists: "do_nothing"})
			},
			func(got any) bool { return got.(agent.Thread).ID == "t" }},
		{"thread", `GET /agent/threads/..%2Fx `, thread,
			func(ctx context.Context, a *agent.Client) (any, error) { return a.Thread(ctx, "../x") },
			func(got any) bool {
				t := got.(agent.Thread)
				return t.Values.Messages[0].Text() == "hi" && len(t.Waiting()) == 1 && t.Status == agent.Interrupted
			}},
		{"threads", `POST /agent/threads/search {"status":"idle","limit":2}`, `[` + thread + `]`,
			func(ctx context.Context, a *agent.Client) (any, error) {
				return a.Threads(ctx, agent.ThreadQuery{Status: agent.Idle, Limit: 2})
			},
			func(got any) bool { return len(got.([]agent.Thread)) == 1 }},
		{"delete", `DELETE /agent/threads/t `, "",
			func(ctx context.Context, a *agent.Client) (any, error) { return nil, a.DeleteThread(ctx, "t") },
			func(any) bool { return true }},
		{"state", `GET /agent/threads/t/state `, state,
			func(ctx context.Context, a *agent.Client) (any, error) { return a.State(ctx, "t", "") },
			func(got any) bool { return got.(agent.State).Values.Messages[0].Text() == "hi" }},
		{"state at", `GET /agent/threads/t/state/c `, state,
			func(ctx context.Context, a *agent.Client) (any, error) { return a.State(ctx, "t", "c") },
			func(got any) bool { return got.(agent.State).Checkpoint.ID == "c" }},
		{"history", `POST /agent/threads/t/history {"before":"c","limit":1}`, `[` + state + `]`,
			func(ctx context.Context, a *agent.Client) (any, error) { return a.History(ctx, "t", 1, "c") },
			func(got any) bool { return len(got.([]agent.State)) == 1 }},
		{"runs", `GET /agent/threads/t/runs?limit=1 `, `[{"run_id":"r","status":"running"}]`,
			func(ctx context.Context, a *agent.Client) (any, error) { return a.Runs(ctx, "t", 1) },
			func(got any) bool { return !got.([]agent.Run)[0].Status.Ended() }},
		{"cancel", `POST /agent/threads/t/runs/r/cancel?action=interrupt&wait=1 `, `{"run_id":"r"}`,
			func(ctx context.Context, a *agent.Client) (any, error) { return nil, a.Cancel(ctx, "t", "r", true) },
			func(any) bool { return true }},
	}
	for _, tt := range tests {
		got := ""
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got = r.Method + " " + r.URL.RequestURI() + " " + string(body)
			if tt.answer == "" {
				w.WriteHeader(204)
			}
			_, _ = io.WriteString(w, tt.answer)
		}))
		c := client.New(s.URL)
		v, err := tt.do(t.Context(), agent.New(c))
		if err != nil || got != tt.want || !tt.good(v) {
			t.Errorf("%s: %s, %v, %+v; want %s", tt.name, got, err, v, tt.want)
		}
		c.Close()
		s.Close()
	}
}

// TestWait: the state when a run has ended, or why it failed.
func TestWait(t *testing.T) {
	for events, want := range map[string]string{"": "", "error {\"error\":\"X\",\"message\":\"it broke\"}": "it broke"} {
		s := &server{status: "success"}
		if events != "" {
			s.events = []string{events}
		}
		a := start(t, s)
		_, err := a.Wait(t.Context(), "t", "r")
		var failed *agent.RunError
		switch {
		case want == "" && err != nil && s.requests[len(s.requests)-1] != "GET /agent/threads/t/state ":
			t.Errorf("Wait = %v after %q", err, s.requests)
		case want != "":
			if failed, _ = err.(*agent.RunError); failed == nil || failed.Error() != want { //nolint:errorlint // it is the error itself
				t.Errorf("Wait = %v, want %s", err, want)
			}
		}
		if got := s.requests[0]; got != "GET /agent/threads/t/runs/r/stream?stream_mode=values -1" {
			t.Errorf("it joins with %q", got)
		}
	}
}
