package daemon_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/api/gen/cubby/guest/v1/guestv1connect"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/errs"
)

// starved is a driver of sandboxes in which a kill ends nothing while they are starved:
// the agent says so, as in a fork storm, and the host is asked in vain.
type starved struct {
	*drivertest.Fake
	agent *httptest.Server // stands before the real one
	now   atomic.Bool
	asked atomic.Int64 // how often the host was

	mu sync.Mutex
	of driver.Handle // the only sandbox; guarded by mu
}

var _ driver.TreeKiller = (*starved)(nil)

func newStarved(t *testing.T) *starved {
	d := &starved{}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		d.mu.Lock()
		h := d.of
		d.mu.Unlock()
		return d.Fake.DialGuest(ctx, h)
	}}
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "guest" },
		FlushInterval: -1, Transport: transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	d.agent = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == guestv1connect.GuestServiceSignalExecProcedure && d.now.Load() {
			d.signal(w, r, pass)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		d.agent.CloseClientConnections()
		d.agent.Close()
		transport.CloseIdleConnections()
	})
	return d
}

// signal answers a kill of a tree and does nothing for it.
func (d *starved) signal(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	body, err := io.ReadAll(r.Body)
	var in guestv1.SignalExecRequest
	if err != nil || proto.Unmarshal(body, &in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if in.GetPatience() == nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		pass.ServeHTTP(w, r)
		return
	}
	out, _ := proto.Marshal(&guestv1.SignalExecResponse{Outlived: true})
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	_, _ = w.Write(out)
}

// DialGuest implements driver.Driver.
func (d *starved) DialGuest(ctx context.Context, h driver.Handle) (net.Conn, error) {
	d.mu.Lock()
	d.of = h
	d.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", d.agent.Listener.Addr().String())
}

// KillOthers implements driver.TreeKiller.
func (d *starved) KillOthers(context.Context, driver.Handle, []int64) error {
	d.asked.Add(1)
	return nil
}

// Who cancels a command is told the truth: that it is over, or that some of it does
// not end and what helps.
func TestCancelOfWhatDoesNotEnd(t *testing.T) {
	starved := newStarved(t)
	d := daemontest.Start(t, daemontest.Options{Drive: func(f *drivertest.Fake) driver.Driver {
		starved.Fake = f
		return starved
	}})
	post := func(path, body string, status int, words ...string) {
		t.Helper()
		res, err := http.Post(d.URL+"/v1/sandboxes"+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != status {
			t.Errorf("%s = %d %s, %v, want %d", path, res.StatusCode, text, err, status)
		}
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				t.Errorf("%s answers %s, want in it %s", path, text, word)
			}
		}
	}
	const (
		running, left = "/a/execs/1", "/a/execs/2"
		inCommand     = `"some processes of the command do not end"`
		inSandbox     = `"3 processes of the sandbox do not end"`
	)
	post("", `{"id":"a"}`, http.StatusCreated)
	post("/a/exec", `{"cmd":"sleep 1000 & echo begun; wait","wait":false}`, http.StatusAccepted)
	post("/a/exec", `{"cmd":"sleep 1000 >/dev/null 2>&1 & echo left"}`, http.StatusOK, `"status":"done"`)

	starved.now.Store(true)
	for _, exec := range []string{running, left} {
		post(exec+"/cancel", "", http.StatusBadGateway, `"sandbox_unavailable"`, inCommand, "stop the sandbox")
		post(exec+"/signal", `{"signal":"KILL","tree":true}`, http.StatusBadGateway, inCommand)
	}
	if starved.asked.Load() == 0 {
		t.Error("the host was not asked to end what the agent cannot")
	}
	d.Faults.SetFail("KillOthers", errs.E(errs.Unavailable, "3 processes of the sandbox do not end"))
	for _, exec := range []string{running, left} {
		post(exec+"/cancel", "", http.StatusBadGateway, `"sandbox_unavailable"`, inSandbox)
	}

	starved.now.Store(false)
	post(running+"/cancel", "", http.StatusOK, `"reason":"killed"`)
	post(left+"/cancel", "", http.StatusOK, `"status":"done"`)
	post(left+"/signal", `{"signal":"KILL","tree":true}`, http.StatusConflict, "wrong_state") // nothing is left
}
