package webhook

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/poll"
	"github.com/cubbyhq/cubby/internal/seal"
	"github.com/cubbyhq/cubby/internal/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// world is a store whose senders come and go.
type world struct {
	t    *testing.T
	db   *store.Store
	cfg  Config
	stop func()
}

func newWorld(t *testing.T) *world {
	key, err := seal.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "db"), Seal: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &world{t: t, db: db, cfg: Config{Store: db, Private: loopback, FirstPause: time.Millisecond, LongestPause: 2 * time.Millisecond}}
}

// start runs a sender until stop.
func (w *world) start() *Sender {
	s := New(w.cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(w.stop)
	return s
}

func (w *world) add(tenant, url string) string {
	w.t.Helper()
	id := NewID()
	if err := w.db.AddWebhookMessage(w.t.Context(), store.WebhookMessage{ID: id, Tenant: tenant, Kind: "test", URL: url, Body: []byte(`{"a":1}`)}); err != nil {
		w.t.Fatal(err)
	}
	return id
}

// ends returns what became of a message.
func (w *world) ends(tenant, id string) store.WebhookMessage {
	w.t.Helper()
	return w.until(tenant, id, func(m store.WebhookMessage) bool { return m.State != store.WebhookPending })
}

func (w *world) until(tenant, id string, is func(store.WebhookMessage) bool) (m store.WebhookMessage) {
	w.t.Helper()
	err := poll.Until(w.t.Context(), time.Millisecond, 20*time.Millisecond, func() (bool, error) {
		list, err := w.db.WebhookMessages(w.t.Context(), tenant, 1000, 0)
		for _, one := range list {
			if one.ID == id {
				m = one
			}
		}
		return is(m), err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// receiver answers what it is told to, and keeps what it got.
type receiver struct {
	*httptest.Server

	mu  sync.Mutex
	got []*http.Request // guarded by mu
}

func receive(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil || string(body) != `{"a":1}` {
			t.Errorf("body %q, %v", body, err)
		}
		r.mu.Lock()
		r.got = append(r.got, req)
		n := len(r.got)
		r.mu.Unlock()
		answer(n, w, req)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) requests() []*http.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*http.Request(nil), r.got...)
}

// TestSignature has what Standard Webhooks' own library for Python signs.
func TestSignature(t *testing.T) {
	secret, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	sign(h, secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if h.Get("webhook-id") != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h.Get("webhook-timestamp") != "1614265330" ||
		h.Get("webhook-signature") != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("headers %v", h)
	}
}

// TestFailuresAreRetried: a receiver that fails is asked again with the same id, signed
// each time, until it takes the message.
func TestFailuresAreRetried(t *testing.T) {
	w := newWorld(t)
	to := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < 4 {
			w.WriteHeader(http.StatusInternalServerError + n)
		}
	})
	s := w.start()
	secret, err := s.RenewSecret(auth.WithPrincipal(t.Context(), auth.Principal{Tenant: "acme"}))
	if err != nil {
		t.Fatal(err)
	}
	id := w.add("acme", to.URL)
	s.Wake()
	if m := w.ends("acme", id); m.State != store.WebhookDelivered || m.Attempts != 4 || m.Status != 200 || m.Failure != "" || len(m.Body) > 0 {
		t.Errorf("message %+v", m)
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(raw) != secretBytes {
		t.Fatalf("secret %q: %v", secret, err)
	}
	for _, r := range to.requests() {
		want := http.Header{}
		at, err := time.ParseDuration(r.Header.Get("Webhook-Timestamp") + "s")
		if err != nil {
			t.Fatal(err)
		}
		sign(want, raw, id, time.Unix(int64(at.Seconds()), 0), []byte(`{"a":1}`))
		for _, name := range []string{"Webhook-Id", "Webhook-Signature"} {
			if r.Header.Get(name) != want.Get(name) {
				t.Errorf("%s: %q, want %q", name, r.Header.Get(name), want.Get(name))
			}
		}
	}
}

// TestGivingUp: each way to fail for good has its reason, and a redirect is not followed.
func TestGivingUp(t *testing.T) {
	w := newWorld(t)
	other := receive(t, func(int, http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	closed := httptest.NewServer(nil)
	closed.Close()
	tls := httptest.NewTLSServer(nil)
	t.Cleanup(tls.Close)
	tls.Config.ErrorLog = nil
	s := w.start()
	for _, tt := range []struct {
		name, url string
		answer    func(w http.ResponseWriter, r *http.Request)
		attempts  int
		why       string
	}{
		{"never well", "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, maxAttempts, "answered 500"},
		{"gone", "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) }, 1, "410"},
		{"redirect", "", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, maxAttempts, "redirects are not followed"},
		{"broken", "", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, maxAttempts, "connection broke"},
		{"nobody", closed.URL, nil, maxAttempts, "cannot connect"},
		{"certificate", tls.URL, nil, maxAttempts, "certificate"},
		{"private", "http://10.1.2.3/", nil, 1, "private address"},
		{"metadata", "http://169.254.169.254/latest", nil, 1, "link-local address"},
	} {
		if tt.url == "" {
			tt.url = receive(t, func(_ int, w http.ResponseWriter, r *http.Request) { tt.answer(w, r) }).URL
		}
		id := w.add("acme", tt.url)
		s.Wake()
		if m := w.ends("acme", id); m.State != store.WebhookFailed || m.Attempts != tt.attempts || !strings.Contains(m.Failure, tt.why) {
			t.Errorf("%s: %+v", tt.name, m)
		}
	}
}

// TestNextDaemonSends: what a daemon did not send, or was sending when it was stopped, the
// next one sends, with the same id.
func TestNextDaemonSends(t *testing.T) {
	w := newWorld(t)
	reached, release := make(chan struct{}, 10), make(chan struct{})
	to := receive(t, func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 1 {
			reached <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
	})
	id := w.add("acme", to.URL)
	w.start() // it looks by itself
	<-reached
	w.stop()
	if m := w.until("acme", id, func(store.WebhookMessage) bool { return true }); m.State != store.WebhookPending || m.Attempts != 0 {
		t.Errorf("after a stop: %+v", m)
	}
	w.start()
	if m := w.ends("acme", id); m.State != store.WebhookDelivered {
		t.Errorf("message %+v", m)
	}
	close(release)
	for _, r := range to.requests() {
		if got := r.Header.Get("Webhook-Id"); got != id {
			t.Errorf("id %s, want %s", got, id)
		}
	}
}

// TestOneTenantWaitsForNoOther: a receiver that never answers holds up its own tenant's
// messages alone.
func TestOneTenantWaitsForNoOther(t *testing.T) {
	w := newWorld(t)
	release := make(chan struct{})
	slow := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	quick := receive(t, func(int, http.ResponseWriter, *http.Request) {})
	for range 40 {
		w.add("slow", slow.URL)
	}
	id := w.add("quick", quick.URL)
	w.start()
	if m := w.ends("quick", id); m.State != store.WebhookDelivered {
		t.Errorf("message %+v", m)
	}
	if n := len(slow.requests()); n > atOnceOfTenant {
		t.Errorf("%d attempts of one tenant at once", n)
	}
	close(release)
}

// TestTooManyUndelivered: a tenant whose receivers are broken cannot fill the disk.
func TestTooManyUndelivered(t *testing.T) {
	w := newWorld(t)
	s := New(w.cfg)
	large := []byte(`"` + strings.Repeat("x", MaxBody) + `"`)
	for range maxPendingBytes / MaxBody {
		if err := s.Admit(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		if err := w.db.AddWebhookMessage(t.Context(), store.WebhookMessage{ID: NewID(), Tenant: "acme", URL: "http://127.0.0.1/", Body: large}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Admit(t.Context(), "acme"); !errors.Is(err, errs.OverQuota) {
		t.Errorf("Admit = %v", err)
	}
	if err := s.Admit(t.Context(), "beta"); err != nil {
		t.Errorf("Admit of another tenant = %v", err)
	}
}

func TestCheck(t *testing.T) {
	s := New(Config{})
	for url, want := range map[string]bool{
		"https://example.com/hook?x=1": true, "http://93.184.215.14:8080/": true, "https://[2606:4700::1111]/": true, "http://name/": true,
		"ftp://example.com": false, "/relative": false, "example.com": false, "http://": false, "http://u:p@example.com/": false, "https://example.com/#x": false,
		"http://127.0.0.1/": false, "http://[::1]/": false, "http://[::ffff:10.0.0.1]/": false, "http://169.254.169.254/": false, "http://10.0.0.1:80/": false,
		"http://example.com/ x": false, "http://example.com/" + strings.Repeat("x", maxURL): false, "http://[fe80::1%25lo]/": false,
	} {
		if err := s.Check(url); (err == nil) != want || err != nil && !errors.Is(err, errs.Invalid) {
			t.Errorf("Check(%.60s) = %v, want allowed: %v", url, err, want)
		}
	}
	s = New(Config{Private: loopback})
	if s.Check("http://127.0.0.1/") != nil || s.Check("http://[::ffff:127.0.0.1]/") != nil || s.Check("http://10.0.0.1/") == nil {
		t.Error("a network that is allowed is not, or another one is")
	}
}

// memory counts what is charged.
type memory int64

func (m *memory) Charge(_ context.Context, bytes int64) error { *m += memory(bytes); return nil }

func (m *memory) Hold(context.Context, int64) (func(), error) { panic("a list is charged") }

// TestListedMessagesAreCharged: a page of long messages counts against its caller's memory.
func TestListedMessagesAreCharged(t *testing.T) {
	w := newWorld(t)
	var charged memory
	w.cfg.Budget = budget.New(&charged)
	long := "https://example.com/" + strings.Repeat("x", 2000)
	for range 20 {
		w.add("acme", long)
	}
	ctx := auth.WithPrincipal(t.Context(), auth.Principal{Name: "web", Tenant: "acme"})
	if list, err := New(w.cfg).Messages(ctx, 20, 0); err != nil || len(list) != 20 || int(charged) < 20*len(long) {
		t.Errorf("%d messages, charged for %d bytes, %v", len(list), charged, err)
	}
}
