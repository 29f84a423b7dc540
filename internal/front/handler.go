package front

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Access says what a request needs to get through.
type Access int

const (
	// Token: a principal. The zero value, so that a forgotten route is closed.
	Token Access = iota
	// TokenOrLocal: a principal, or a peer on this machine that no proxy
	// stands in front of and no web page directs.
	TokenOrLocal
	// Anyone: no principal.
	Anyone
)

// Config is what [Handler] needs.
type Config struct {
	// Auth names the principals. Nil means that there is no authentication:
	// then every request must be of this machine, by its Host and its Origin.
	Auth *auth.Authenticator
	// SecretHeaders name more headers in which clients of dialects send tokens.
	SecretHeaders []string
	// Origins are those whose web pages may use the daemon.
	Origins []string
	Access  func(*http.Request) Access
	// PassOn leaves all that to next, whose answers are somebody else's: any path,
	// host and origin comes through without a token and is not counted, and answers
	// have no header of the daemon's.
	PassOn  bool
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	// Memory bounds what requests make the daemon hold; nil is one of the
	// default size.
	Memory *Budget
	// Guesses counts wrong tokens; nil: of this handler alone.
	Guesses *Guesses
	// Error answers in the dialect of the path. It is called for requests
	// that never reach the doors.
	Error func(http.ResponseWriter, *http.Request, error)
}

// Handler is what every request passes through before a door sees it: it gives
// the request its id, bounds its stalls, checks its path, its Host and Origin
// or its token before it reads any of the body, and afterwards recovers panics,
// counts and logs. The log line holds the route's pattern and never the path,
// the query, a header or a body. Clients that hold too many requests open or
// too much memory, or try too many tokens, are refused.
func Handler(c Config, next http.Handler) http.Handler {
	held := new(limits)
	if c.Memory == nil {
		c.Memory = NewBudget(0)
	}
	if c.Guesses == nil {
		c.Guesses = new(Guesses)
	}
	if c.PassOn {
		c.Access = func(*http.Request) Access { return Anyone }
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		ctx, id := withRequestID(r.Context(), r.Header.Get("X-Request-Id"))
		r = r.WithContext(ctx)
		w := newResponse(rw, r)
		first := func() {
			if c.PassOn {
				return
			}
			w.Header().Set("X-Request-Id", id)
			w.Header().Set("X-Content-Type-Options", "nosniff")
		}
		first()
		b := new(body)
		if r.Body != nil && r.Body != http.NoBody {
			b = &body{ReadCloser: r.Body, control: w.control}
			r.Body = b
			// After the handler the server reads what is left of a body, and
			// the answer waits for that.
			defer b.abandon()
		}
		name := ""
		defer func() {
			if !w.hijacked {
				w.extend() // for the flush that follows the handler
			}
			c.record(w, r, name, time.Since(begun))
		}()
		defer func() {
			b.charged.release()
			if v := recover(); v != nil {
				c.recovered(w, r, v)
			}
			w.end()
		}()

		p, err := c.admit(r)
		if err != nil {
			c.Error(w, r, err)
			return
		}
		name = p.Name
		who := clientOf(p, r.RemoteAddr)
		if c.Access(r) != Anyone { // who looks after the daemon can always ask it
			leave, err := held.enter(who)
			if err != nil {
				c.Error(w, r, err)
				return
			}
			defer leave()
		}
		w.account = &account{memory: c.Memory, client: who}
		b.charged = charged{memory: c.Memory, client: who, account: w.account, refuse: w.drop}
		defer w.account.close()
		w.refuse = func(err error) {
			first()
			c.Error(w, r, err)
		}
		ctx = context.WithValue(auth.WithPrincipal(ctx, p), accountKey{}, w.account)
		if !c.PassOn {
			ctx, w.losses = scope.WithLosses(ctx)
		}
		r = r.WithContext(ctx)
		next.ServeHTTP(w, r)
	})
}

func (c Config) admit(r *http.Request) (auth.Principal, error) {
	switch {
	case fields(r.Header) > maxFields:
		return auth.Principal{}, errs.E(errs.TooLarge, "the request has more than %d header fields", maxFields)
	case c.PassOn:
		return auth.Principal{}, nil
	case !plainPath(r.URL.Path):
		return auth.Principal{}, errs.E(errs.Invalid, "malformed path")
	case c.Auth == nil:
		return auth.Principal{}, c.ownMachine(r)
	}
	access := c.Access(r)
	for _, secret := range secrets(r.Header, c.SecretHeaders) {
		if p, ok := c.Auth.Authenticate(secret); ok {
			return p, nil
		}
		if access != Anyone {
			if err := c.Guesses.Wrong(r.RemoteAddr); err != nil {
				return auth.Principal{}, err
			}
			return auth.Principal{}, errs.E(errs.Unauthenticated, "unauthorized").
				Hint("the token that was sent is not one of this daemon's")
		}
	}
	if access == Anyone || access == TokenOrLocal && localPeer(r) && c.ownMachine(r) == nil {
		return auth.Principal{}, nil
	}
	return auth.Principal{}, errs.E(errs.Unauthenticated, "unauthorized").
		Hint("send a token: Authorization: Bearer SECRET")
}

// secrets returns what the request presents. The first decides: a request with
// a wrong token and a right one is a mistake and not a search. More headers than
// the API's own may have it.
func secrets(h http.Header, more []string) []string {
	scheme, value, ok := strings.Cut(h.Get("Authorization"), " ")
	switch {
	case ok && strings.EqualFold(scheme, "bearer"):
		return []string{strings.TrimSpace(value)}
	case h.Get("X-API-Key") != "":
		return []string{h.Get("X-API-Key")}
	}
	for _, name := range more {
		if secret := h.Get(name); secret != "" {
			return []string{secret}
		}
	}
	return webSocketSecret(h)
}

// maxFields bounds the header fields of a request: each takes many times its
// bytes for as long as the request lasts.
const maxFields = 256

func fields(h http.Header) (n int) {
	for _, values := range h {
		n += len(values)
	}
	return n
}

// ownMachine refuses what a web page can do to a daemon without tokens: send
// requests to it from a foreign origin, or under a foreign name that was bent
// to this machine (DNS rebinding).
func (c Config) ownMachine(r *http.Request) error {
	if !loopbackName(r.Host) {
		return errs.E(errs.Forbidden, "requests for a foreign host name are refused").
			Hint("without tokens the daemon answers to localhost and 127.0.0.1 only; set CUBBY_TOKENS to use other names")
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(c.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) {
		return errs.E(errs.Forbidden, "requests of a foreign origin are refused").
			Hint("without tokens the daemon refuses web pages of other origins; name theirs in CUBBY_CORS_ORIGINS, or set CUBBY_TOKENS and send one")
	}
	return nil
}

func loopbackName(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// localPeer is about the connection and not about what the request claims.
func localPeer(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// plainPath refuses paths that the mux would answer with a redirect: a
// traversal deserves an error and not another try.
func plainPath(p string) bool {
	if p == "" || p[0] != '/' || strings.ContainsRune(p, 0) {
		return false
	}
	clean := path.Clean(p)
	return clean == p || clean+"/" == p
}

func (c Config) recovered(w *response, r *http.Request, v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel is compared by identity in net/http too
		panic(v)
	}
	c.Log.ErrorContext(r.Context(), "request panicked",
		telemetry.KeyRequest, RequestID(r.Context()), telemetry.KeyRoute, route(r), "panic", v, "stack", string(debug.Stack()))
	if !w.sent {
		w.status = 0
		c.Error(w, r, errs.E(errs.Internal, "internal error"))
		return
	}
	// The answer is half written: breaking the connection is the only way
	// left to tell the client.
	panic(http.ErrAbortHandler)
}

func (c Config) record(w *response, r *http.Request, who string, d time.Duration) {
	status := w.status
	if status == 0 {
		status = http.StatusOK
		if r.Context().Err() != nil {
			status = StatusClientClosedRequest
		}
	}
	c.Metrics.Request(method(r), route(r), status, d)
	level := slog.LevelInfo
	// What is passed on says what an app did, and a page that looks again says it
	// every two seconds.
	if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable && !c.PassOn {
		level = slog.LevelWarn
	} else if status < http.StatusBadRequest && c.Access(r) == Anyone {
		level = slog.LevelDebug // health checks
	}
	c.Log.Log(context.WithoutCancel(r.Context()), level, "request",
		telemetry.KeyRequest, RequestID(r.Context()), telemetry.KeyMethod, method(r), telemetry.KeyRoute, route(r),
		telemetry.KeyStatus, status, telemetry.KeyBytes, w.bytes, telemetry.KeyDuration, d.Round(time.Microsecond),
		telemetry.KeyPrincipal, who, telemetry.KeyRemote, r.RemoteAddr)
}

// route is the pattern that matched, without its method.
func route(r *http.Request) string {
	_, pattern, ok := strings.Cut(r.Pattern, " ")
	if !ok {
		pattern = r.Pattern // of every method
	}
	if pattern == "" || pattern == "/" {
		return "none"
	}
	return pattern
}

// method bounds the label to what exists.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return r.Method
	}
	return "other"
}
