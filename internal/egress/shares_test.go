package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// A tenant whose sandboxes open what they can leaves the others theirs, as does
// a sandbox of none, and is told why it gets no more; what it closes is there
// again.
func TestATenantHasABoundOfConnections(t *testing.T) {
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", echoServer(t), 7)
	r.proxy.streams = tenancy.NewPlaces(streamsOpen, tenancy.Bound{All: 10, Tenant: 3, Reserved: 4})
	connect := func(tenant, box string) (net.Conn, int, string) {
		t.Helper()
		c := r.dialAs(Guest{Box: sandbox.UID(box), Tenant: tenant})
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(c, "CONNECT a.example.com:7 HTTP/1.1\r\nHost: x\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusOK {
			return c, res.StatusCode, ""
		}
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		return c, res.StatusCode, res.Status + string(text)
	}
	var last net.Conn
	for i, step := range []struct {
		tenant, box string
		want        int
		why         string
	}{
		{"one", "a", 200, ""}, {"one", "a", 200, ""}, {"one", "a", 503, "this sandbox"},
		{"one", "b", 200, ""}, {"one", "b", 503, "this tenant"},
		{"two", "c", 200, ""}, {"two", "d", 200, ""}, {"two", "d", 503, "this tenant"},
		{"three", "e", 200, ""}, {"two", "d", 503, "all tenants"}, {"four", "f", 503, "all tenants"},
		{"", "g", 200, ""}, {"", "g", 200, ""}, {"", "g", 503, "this sandbox"},
		{"", "h", 200, ""}, {"", "h", 503, "this sandbox"}, {"", "i", 200, ""}, {"", "i", 503, "all tenants"},
	} {
		c, code, text := connect(step.tenant, step.box)
		if code != step.want || !strings.Contains(text, step.why) {
			t.Errorf("connection %d, of tenant %q = %d %q, want %d %s", i, step.tenant, code, text, step.want, step.why)
		}
		if step.box == "b" && code == 200 {
			last = c
		}
	}
	socks := r.dialAs(Guest{Box: "b", Tenant: "one"})
	_ = socks.SetDeadline(time.Now().Add(patience))
	if _, err := socks.Write([]byte{5, 1, 0, 5, 1, 0, 1, 93, 184, 215, 14, 0, 7}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(socks); err != nil || !slices.Equal(got, append([]byte{5, 0}, socksReply(socksFailure)...)) {
		t.Errorf("one more by SOCKS = %v, %v", got, err)
	}
	last.Close()
	r.until("there is a place again", func() bool {
		_, code, _ := connect("four", "f")
		return code == 200
	})
}

// slowNames is a resolver that answers when it is let.
type slowNames struct {
	mu    sync.Mutex
	asked []string
	let   chan struct{}
}

func (n *slowNames) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	n.asked = append(n.asked, host)
	n.mu.Unlock()
	select {
	case <-n.let:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return addrs("93.184.215.14"), nil
}

func (n *slowNames) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.asked)
}

// Names that are not answered hold the turns of one tenant, and not those of
// the others; who waits is served in the end.
func TestATenantHasABoundOfLookups(t *testing.T) {
	r := newRig(t, "")
	slow := &slowNames{let: make(chan struct{})}
	r.proxy.resolver = slow
	r.proxy.lookups = tenancy.NewTurns(tenancy.Bound{All: 5, Tenant: 2, Reserved: 2})
	policy := sandbox.Policy{Mode: sandbox.NetworkOpen}
	var all sync.WaitGroup
	explain := func(from Guest) {
		all.Go(func() {
			d, err := r.proxy.Explain(t.Context(), from, policy, "name.example.com", 443)
			if err != nil || !d.Allow {
				t.Errorf("a lookup of %v: %+v, %v", from, d, err)
			}
		})
	}
	for range 5 {
		explain(Guest{Tenant: "one"})
	}
	r.until("the tenant's turns are taken", func() bool { return slow.count() == 2 })
	explain(Guest{Tenant: "two"})
	r.until("another tenant's name is looked up", func() bool { return slow.count() == 3 })
	explain(Guest{Tenant: "two"})
	for range 3 {
		explain(Guest{Box: "greedy"})
	}
	r.until("a name of no tenant is looked up", func() bool { return slow.count() == 4 })
	explain(Guest{Box: "other"})
	r.until("a name of another sandbox of none is looked up", func() bool { return slow.count() == 5 })
	close(slow.let)
	all.Wait()
	if n := slow.count(); n != 11 {
		t.Errorf("%d names were looked up, want 11", n)
	}
}
