// Package wire is what the dialects of language models share: a request over HTTP
// that is tried again while nothing of the answer has come, the reading of
// Server-Sent Events, and the sorting of what providers say is wrong into
// [llm.Error]. It knows no provider's messages: a dialect gives it a request and a
// [Decoder].
//
// A key leaves it in the header of a request to the base URL that it was given with,
// and nowhere else: redirects are not followed, and errors, logs and printed values
// do not contain it.
package wire

import (
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/telemetry"
)

const (
	// DefaultIdle bounds the silence of a provider: until its headers come, and
	// between two pieces of its answer. Models that think, and machines that load
	// one first, are silent for minutes.
	DefaultIdle = 5 * time.Minute
	// DefaultTries counts the first one.
	DefaultTries = 3

	firstPause   = 500 * time.Millisecond
	longestPause = 8 * time.Second
	// longestWait bounds how long a provider's Retry-After is waited for. A longer
	// one is the caller's to decide about.
	longestWait = time.Minute

	maxLine   = 16 << 20 // of a stream, and of one of its events
	maxStream = 64 << 20 // of all that an answer sends
	maxBody   = 16 << 20 // of an answer that is no stream
	maxFault  = 64 << 10 // of a body that says what is wrong
	maxText   = 500      // characters of that in an error
)

// Key is a secret. Printing it, or a value that has it, does not show it.
type Key struct {
	secret *string // a pointer: fmt shows the fields of structs that it cannot ask
}

// NewKey returns a key, which is unset when secret is "".
func NewKey(secret string) Key {
	if secret == "" {
		return Key{}
	}
	return Key{&secret}
}

// Reveal returns the secret, "" when there is none.
func (k Key) Reveal() string {
	if k.secret == nil {
		return ""
	}
	return *k.secret
}

// Set reports whether there is a secret.
func (k Key) Set() bool { return k.secret != nil }

func (k Key) String() string {
	if k.Set() {
		return "[set]"
	}
	return "[unset]"
}

// GoString is [Key.String].
func (k Key) GoString() string { return k.String() }

// LogValue is [Key.String].
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }

// MarshalText is [Key.String]: a key that has to be stored is sealed by whoever
// stores it.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Config says where a provider is and how it is asked.
type Config struct {
	Name    string // as errors name it
	BaseURL string // without a trailing slash
	Key     Key
	// HTTP makes the connections; nil: http.DefaultTransport. Its redirects and
	// its time limit are not used.
	HTTP  *http.Client
	Idle  time.Duration // 0: [DefaultIdle]
	Tries int           // 0: [DefaultTries]
	Pause time.Duration // before the second try, about; 0: half a second
	Room  *Room         // shared by clients; nil: no bound
}

// Client makes the requests of one provider. It may be used from any goroutine.
type Client struct {
	config Config
	http   *http.Client
}

// New returns a client. It connects to nothing.
func New(c Config) *Client {
	var own http.Client
	if c.HTTP != nil {
		own.Transport = c.HTTP.Transport
	}
	// A key must not travel to where a redirect leads.
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	if c.Tries == 0 {
		c.Tries = DefaultTries
	}
	if c.Pause == 0 {
		c.Pause = firstPause
	}
	return &Client{config: c, http: &own}
}

// Call is a request of a dialect.
type Call struct {
	Path   string // below the base URL, with its query
	Header http.Header
	Body   []byte // JSON; nil makes it a GET
}

// Bearer is the header with which most providers take a key.
func Bearer(k Key) http.Header {
	h := http.Header{}
	if k.Set() {
		h.Set("Authorization", "Bearer "+k.Reveal())
	}
	return h
}

// request makes what is sent, without the body.
func (c *Client) request(call Call, accept string) (*http.Request, error) {
	u, err := url.Parse(strings.TrimRight(c.config.BaseURL, "/") + call.Path)
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Header: call.Header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Accept", accept)
	// A compressed stream arrives in blocks and not as it is written.
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "cubby/"+telemetry.Version)
	if call.Body != nil {
		r.Method = http.MethodPost
		r.Header.Set("Content-Type", "application/json")
	}
	return r, nil
}
