package core_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/tasks"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/task"
)

// here is a resolver for which every name is this machine.
type here struct{}

func (here) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// While a task runs its sandbox may reach the provider, there and nowhere else, which
// its history says; before and afterwards it may not, and connections end with the
// task. A provider that only the caller names opens nothing.
func TestProviderIsLentToATask(t *testing.T) {
	_, port, err := net.SplitHostPort(echoHost(t))
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, supervisedBy(waitsForLines), func(c *core.Config) { c.Egress.Resolver = here{} })
	b := w.create("a")
	provider := "models.example:" + port
	if _, err := w.Secrets().Set(w.ctx, "", "ANTHROPIC_BASE_URL", "http://"+provider); err != nil {
		t.Fatal(err)
	}
	status := func(target string) int {
		t.Helper()
		conn, err := net.Dial("tcp", w.fake.EgressAddr(b.UID))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
		res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	if got := status(provider); got != http.StatusForbidden {
		t.Errorf("before the task: %d", got)
	}
	start := func(edit func(*tasks.Request)) tasks.Task {
		t.Helper()
		req := tasks.Request{Prompt: "x", Agent: "claude"}
		edit(&req)
		started, err := w.Tasks().Start(w.ctx, "a", req)
		if err != nil {
			t.Fatal(err)
		}
		return started
	}
	history := func() (all []event.Lent) {
		t.Helper()
		events, _, err := w.Events().List(w.ctx, "a", 0, 0, event.EgressLent)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			var l event.Lent
			if err := json.Unmarshal(e.Payload, &l); err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		return all
	}
	started := start(func(*tasks.Request) {})
	w.until("the history says so", func() bool { return len(history()) == 1 })
	lent := history()
	if lent[0].Host != "models.example" || fmt.Sprint(lent[0].Port) != port || lent[0].Task != string(started.ID) {
		t.Errorf("the history has %+v", lent)
	}
	for target, want := range map[string]int{provider: http.StatusOK, "models.example:1": http.StatusForbidden, "x.models.example:" + port: http.StatusForbidden} {
		if got := status(target); got != want {
			t.Errorf("%s during the task: %d, want %d", target, got, want)
		}
	}
	open := w.tunnel(b, provider)
	open.echo(t, "hello")

	// The next daemon goes on with it.
	w.restart()
	w.until("the provider is lent again", func() bool { return status(provider) == http.StatusOK })
	open = w.tunnel(b, provider)
	open.echo(t, "hello again")
	if _, err := w.Tasks().Cancel(w.ctx, "a", string(started.ID)); err != nil {
		t.Fatal(err)
	}
	if r := w.endTask("a", started.ID); r.Status != task.Cancelled {
		t.Errorf("result %+v", r)
	}
	open.ended(t)
	w.until("it is taken back", func() bool { return status(provider) == http.StatusForbidden })

	// What the caller says of a provider is for the agent, and opens nothing.
	if err := w.Secrets().Remove(w.ctx, "", "ANTHROPIC_BASE_URL"); err != nil {
		t.Fatal(err)
	}
	again := start(func(r *tasks.Request) { r.Env = map[string]string{"ANTHROPIC_BASE_URL": "http://" + provider} })
	w.until("the usual provider is lent", func() bool { return len(history()) == 2 })
	if lent := history(); lent[1].Host != "api.anthropic.com" || lent[1].Port != 443 {
		t.Errorf("lent %+v", lent)
	}
	if got := status(provider); got != http.StatusForbidden {
		t.Errorf("the caller's provider: %d", got)
	}
	if _, err := w.Tasks().Cancel(w.ctx, "a", string(again.ID)); err != nil {
		t.Fatal(err)
	}
	w.endTask("a", again.ID)
}
