package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// FuzzServe lets a guest say anything. Whatever it is, only the one host that
// its policy allows is looked up and dialled, and serving ends with the stream.
func FuzzServe(f *testing.F) {
	for _, s := range []string{
		"GET http://a.example.com/ HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT a.example.com:443 HTTP/1.1\r\n\r\nhello",
		"CONNECT 127.0.0.1:22 HTTP/1.1\r\n\r\n",
		"GET http://a.example.com@b.example.com/ HTTP/1.1\r\n\r\n",
		"POST http://a.example.com/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET http://b.example.com/ HTTP/1.0\r\n\r\n",
		"GET http://a.example.com/ HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		names := &names{answers: map[string][][]netip.Addr{"a.example.com": {addrs("93.184.215.14")}}}
		p := New(Config{
			Resolver: names,
			Dial: func(_ context.Context, _, address string) (net.Conn, error) {
				if !strings.HasPrefix(address, "93.184.215.14:") {
					t.Errorf("dialled %s", address)
				}
				return nil, errors.New("nobody there")
			},
			OnDecision: func(_ sandbox.UID, d Decision) {
				if d.Allow && d.Host != "a.example.com" {
					t.Errorf("allowed %s", d.HostPort())
				}
			},
		})
		guest, host := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Serve(context.Background(), host, sandbox.DoorProxy, Guest{Box: "box"}, func() sandbox.Policy {
				return sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
			})
		}()
		go func() { _, _ = io.Copy(io.Discard, guest) }()
		_ = guest.SetWriteDeadline(time.Now().Add(5 * time.Second))
		_, _ = guest.Write(data) // the proxy may have hung up
		guest.Close()
		<-done
		for _, n := range names.lookedUp() {
			if n != "a.example.com." {
				t.Errorf("looked up %s", n)
			}
		}
	})
}
