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

// A tenant whose sandboxes open what they can leaves the others theirs, is told
// why it gets no more, and has its own again when it closes some.
func TestATenantHasABoundOfConnections(t *testing.T) {
	r := newRig(t, "")
	r.publish("a.example.com", "93.184.215.14", echoServer(t), 7)
	r.proxy.streams = tenancy.NewPlaces(streamsOpen, tenancy.Bound{All: 6, Tenant: 3, Reserved: 2})
	connect := func(tenant string) (net.Conn, int, string) {
		t.Helper()
		c := r.dialAs(Guest{Box: "box", Tenant: tenant})
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
		tenant string
		want   int
		why    string
	}{
		{"one", 200, ""}, {"one", 200, ""}, {"one", 200, ""}, {"one", 503, "this tenant"},
		{"two", 200, ""}, {"two", 503, "all tenants"},
		{"", 200, ""}, {"", 200, ""}, {"", 503, "all tenants"},
	} {
		c, code, text := connect(step.tenant)
		if code != step.want || !strings.Contains(text, step.why) {
			t.Errorf("connection %d, of tenant %q = %d %q, want %d %s", i, step.tenant, code, text, step.want, step.why)
		}
		if step.tenant == "one" && code == 200 {
			last = c
		}
	}
	socks := r.dialAs(Guest{Box: "box", Tenant: "one"})
	_ = socks.SetDeadline(time.Now().Add(patience))
	if _, err := socks.Write([]byte{5, 1, 0, 5, 1, 0, 1, 93, 184, 215, 14, 0, 7}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(socks); err != nil || !slices.Equal(got, append([]byte{5, 0}, socksReply(socksFailure)...)) {
		t.Errorf("one more by SOCKS = %v, %v", got, err)
	}
	last.Close()
	r.until("the tenant can connect again", func() bool {
		_, code, _ := connect("one")
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
	r.proxy.lookups = tenancy.NewTurns(tenancy.Bound{All: 4, Tenant: 2, Reserved: 1})
	policy := sandbox.Policy{Mode: sandbox.NetworkOpen}
	var all sync.WaitGroup
	explain := func(tenant string) {
		all.Go(func() {
			d, err := r.proxy.Explain(t.Context(), tenant, policy, "name.example.com", 443)
			if err != nil || !d.Allow {
				t.Errorf("a lookup of tenant %q: %+v, %v", tenant, d, err)
			}
		})
	}
	for range 5 {
		explain("one")
	}
	r.until("the tenant's turns are taken", func() bool { return slow.count() == 2 })
	explain("two")
	r.until("another tenant's name is looked up", func() bool { return slow.count() == 3 })
	explain("two")
	explain("")
	r.until("a name of no tenant is looked up", func() bool { return slow.count() == 4 })
	close(slow.let)
	all.Wait()
	if n := slow.count(); n != 8 {
		t.Errorf("%d names were looked up, want 8", n)
	}
}
