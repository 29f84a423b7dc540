package rpc_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func (s service) list() []string {
	s.t.Helper()
	var out sandboxv1.ListSessionsResponse
	s.must("ListSessions", &sandboxv1.ListSessionsRequest{}, &out)
	ids := make([]string, len(out.GetSessions()))
	for i, session := range out.GetSessions() {
		ids[i] = session.GetSessionId()
	}
	return ids
}

func (s service) destroy(id string) bool {
	s.t.Helper()
	var out sandboxv1.DestroySessionResponse
	s.must("DestroySession", &sandboxv1.DestroySessionRequest{SessionId: id}, &out)
	return out.GetSuccess()
}

// clock is a clock that stands still until it is put on.
type clock struct {
	mu  sync.Mutex
	now time.Time // guarded by mu
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A session ends 1800 seconds after its last use. A command that runs is use
// all the time, and asking after a session is.
func TestIdleSessions(t *testing.T) {
	t.Parallel()
	now := &clock{now: time.Now()}
	d := daemontest.Start(t, daemontest.Options{Now: now.Now})
	s := dial(t, d)
	for _, id := range []string{"unused", "asked", "busy"} {
		s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr(id)})
	}
	rest := client.New(d.URL)
	box, err := rest.Get(t.Context(), "unused")
	if err != nil || box.IdleAt == nil || box.IdleAt.Sub(now.Now()).Round(time.Second) != 1800*time.Second {
		t.Errorf("at %s it idles at %s, %v", now.Now(), box.IdleAt, err)
	}

	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.stream(bounded(t), &sandboxv1.ExecStreamRequest{SessionId: "busy", Command: "echo begun; until test -e end; do sleep 0.05; done"},
			func(m *sandboxv1.ExecStreamResponse) {
				if m.GetData() == "begun\n" {
					close(begun)
				}
			})
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("the command ended: %v", err)
	}
	now.add(1000 * time.Second)
	var got sandboxv1.GetSessionResponse
	s.must("GetSession", &sandboxv1.GetSessionRequest{SessionId: "asked"}, &got)
	if used := got.GetSession().GetLastActivity(); used != float64(now.Now().UnixMicro())/1e6 {
		t.Errorf("last_activity = %f", used)
	}
	now.add(1000 * time.Second)
	wait(t, "the unused session to end", func() bool { return !slices.Contains(s.list(), "unused") })
	// Listing is no use; what is left was used or is.
	if ids := s.list(); len(ids) != 2 {
		t.Errorf("left are %v", ids)
	}
	if out := s.exec(&sandboxv1.ExecRequest{SessionId: "unused", Command: "true"}); !strings.HasPrefix(out.GetStderr(), "Session not found: destroyed ") || !strings.HasSuffix(out.GetStderr(), " ago: idle") {
		t.Errorf("Exec in it = %v", out)
	}
	now.add(24 * time.Hour)
	wait(t, "the other one to end", func() bool { return slices.Equal(s.list(), []string{"busy"}) })
	s.exec(&sandboxv1.ExecRequest{SessionId: "busy", Command: "touch end"})
	if err := <-ended; err != nil {
		t.Errorf("ExecStream = %v", err)
	}
	wait(t, "the last one to end", func() bool {
		now.add(1801 * time.Second) // its command's end, which is use, may be noted after it was told
		return len(s.list()) == 0
	})
}

// A session is a sandbox, and the other doors' sandboxes can be used here.
func TestSandboxesOfOtherDoors(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s, rest := dial(t, d), client.New(d.URL)
	for id, labels := range map[string]map[string]string{"plain": nil, "labelled": {"agentbox": "true"}} {
		if _, err := rest.Create(t.Context(), client.CreateOptions{ID: id, Labels: labels}); err != nil {
			t.Fatal(err)
		}
		if out := s.exec(&sandboxv1.ExecRequest{SessionId: id, Command: "echo hello"}); out.GetStdout() != "hello\n" {
			t.Errorf("Exec in %s = %v", id, out)
		}
	}
	s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("session")})
	ids := s.list()
	if slices.Sort(ids); !slices.Equal(ids, []string{"labelled", "session"}) {
		t.Errorf("ListSessions = %v", ids)
	}
	if box, err := rest.Get(t.Context(), "session"); err != nil || box.Labels["agentbox"] != "true" {
		t.Errorf("the session over REST = %+v, %v", box, err)
	}
	for _, id := range []string{"plain", "labelled", "session"} {
		if !s.destroy(id) || s.destroy(id) {
			t.Errorf("%s was not destroyed once", id)
		}
	}
}

// A session that another door stopped runs again, with its files, when it is
// asked for.
func TestStoppedSession(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s, rest := dial(t, d), client.New(d.URL)
	made := s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a")})
	s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "echo kept >file"})
	if _, err := rest.Stop(t.Context(), "a", time.Second); err != nil {
		t.Fatal(err)
	}
	if err := s.call(bounded(t), "Exec", &sandboxv1.ExecRequest{SessionId: "a", Command: "true"}, &sandboxv1.ExecResponse{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("Exec in a stopped session = %v", err)
	}
	// All else that is asked is not looked at, right or wrong.
	again := s.create(&sandboxv1.CreateSessionRequest{SessionId: ptr("a"), AllowedHosts: []string{"http://no.host/"}})
	if again.GetContainerId() != made.GetContainerId() || again.GetStatus() != "running" {
		t.Errorf("CreateSession = %v", again)
	}
	if out := s.exec(&sandboxv1.ExecRequest{SessionId: "a", Command: "cat file"}); out.GetStdout() != "kept\n" {
		t.Errorf("its file = %v", out)
	}
}

// Calls that create one id at once all get the one session.
func TestCreatesOfOneID(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	uids := make(chan string)
	const calls = 8
	for range calls {
		go func() {
			var out sandboxv1.CreateSessionResponse
			if err := s.call(bounded(t), "CreateSession", &sandboxv1.CreateSessionRequest{SessionId: ptr("one")}, &out); err != nil {
				uids <- err.Error()
				return
			}
			uids <- out.GetSession().GetContainerId()
		}()
	}
	first := <-uids
	for range calls - 1 {
		if uid := <-uids; uid != first {
			t.Errorf("two creates of one id gave %s and %s", first, uid)
		}
	}
}

// An id that one caller destroys while another one creates it is never refused
// as taken, and no create gets a session that is not there.
func TestCreateWhileDestroyed(t *testing.T) {
	s := dial(t, daemontest.Start(t, daemontest.Options{}))
	ctx, cancel := context.WithCancel(bounded(t))
	var destroyer sync.WaitGroup
	destroyer.Go(func() {
		for ctx.Err() == nil {
			_ = s.call(ctx, "DestroySession", &sandboxv1.DestroySessionRequest{SessionId: "a"}, &sandboxv1.DestroySessionResponse{})
		}
	})
	for range 20 {
		var out sandboxv1.CreateSessionResponse
		err := s.call(ctx, "CreateSession", &sandboxv1.CreateSessionRequest{SessionId: ptr("a")}, &out)
		if err != nil || out.GetSession().GetContainerId() == "" {
			t.Errorf("CreateSession = %v, %v", &out, err)
		}
	}
	cancel()
	destroyer.Wait()
}
