package egress

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names is a resolver whose answers the test writes. Each lookup of a name
// takes its next answer; the last one stays.
type names struct {
	mu      sync.Mutex
	answers map[string][][]netip.Addr
	asked   []string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, host)
	list := n.answers[strings.TrimSuffix(host, ".")]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(list) > 1 {
		n.answers[strings.TrimSuffix(host, ".")] = list[1:]
	}
	return append([]netip.Addr(nil), list[0]...), nil
}

// lookedUp returns the names that were asked for so far: a transport may go on
// dialing in the background.
func (n *names) lookedUp() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.asked)
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// answers is one answer with these addresses.
func answers(list ...string) [][]netip.Addr { return [][]netip.Addr{addrs(list...)} }

// rig is a proxy with everything around it that a test wants to see.
type rig struct {
	t      testing.TB
	proxy  *Proxy
	names  *names
	policy sandbox.Policy
	live   *atomic.Pointer[sandbox.Policy] // not nil: instead of policy, for one that changes while it is asked for

	mu        sync.Mutex
	decisions []Decision
	ends      []Connection
	dialled   []string
	routes    map[string]string // address that the proxy dials to the one that the test listens on
}

func newRig(t testing.TB, operator string) *rig {
	t.Helper()
	op, err := ParseOperator(operator, "")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, names: &names{answers: map[string][][]netip.Addr{}}, routes: map[string]string{},
		policy: sandbox.Policy{Mode: sandbox.NetworkOpen},
	}
	r.proxy = New(Config{
		Operator: op, Resolver: r.names,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			r.mu.Lock()
			r.dialled = append(r.dialled, address)
			to, ok := r.routes[address]
			r.mu.Unlock()
			if !ok {
				to = address
			}
			return new(net.Dialer).DialContext(ctx, network, to)
		},
		OnDecision: func(box sandbox.UID, d Decision) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.decisions = append(r.decisions, d)
		},
		OnEnd: func(_ sandbox.UID, c Connection) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ends = append(r.ends, c)
		},
	})
	return r
}

// publish gives a name a public address behind which the server at to answers.
func (r *rig) publish(name, address, to string, port int) {
	r.names.answers[name] = [][]netip.Addr{addrs(address)}
	r.routes[netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)).String()] = to
}

func (r *rig) seen() []Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Decision(nil), r.decisions...)
}

// dial opens a guest stream: a UNIX socket pair, as the channel's.
func (r *rig) dial() net.Conn { return r.dialAs(Guest{Box: "box"}) }

func (r *rig) dialAs(from Guest) net.Conn { return r.dialDoor(sandbox.DoorProxy, from) }

func (r *rig) dialDoor(door sandbox.Door, from Guest) net.Conn {
	r.t.Helper()
	guest, host := socketPair(r.t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.proxy.Serve(context.Background(), host, door, from, func() sandbox.Policy {
			if r.live != nil {
				return *r.live.Load()
			}
			return r.policy
		})
	}()
	r.t.Cleanup(func() { guest.Close(); <-done })
	return guest
}

func socketPair(t testing.TB) (net.Conn, net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "egress")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

// client is an HTTP client behind the proxy.
func (r *rig) client() *http.Client {
	tr := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:3128"}),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return r.dial(), nil
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func hostOf(rawURL string) string { return rawURL[strings.Index(rawURL, "//")+2:] }

func get(t *testing.T, c *http.Client, u string) (int, string, *http.Response) {
	t.Helper()
	res, err := c.Get(u)
	if err != nil {
		t.Fatalf("GET %s = %v", u, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("GET %s: body: %v", u, err)
	}
	return res.StatusCode, string(b), res
}
