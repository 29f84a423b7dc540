package egress

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// sink is a server that says nothing and keeps what it hears until the end.
func sink(t testing.TB) (address string, heard func() []byte) {
	all := make(chan []byte, 1)
	return server(t, func(c net.Conn) {
			b, _ := io.ReadAll(c)
			all <- b
		}), func() []byte {
			t.Helper()
			select {
			case b := <-all:
				return b
			case <-time.After(patience):
				t.Fatal("the server's connection does not end")
				return nil
			}
		}
}

// pieces is a record as records of one byte each, but for the last one.
func pieces(record []byte, single int) []byte {
	var out []byte
	for body := record[recordHeader:]; len(body) > 0; single-- {
		n := 1
		if single <= 0 {
			n = len(body)
		}
		out = append(append(out, record[0], 3, 3, byte(n>>8), byte(n)), body[:n]...)
		body = body[n:]
	}
	return out
}

// tls12Hello is the hello of a client that has no TLS 1.3.
func tls12Hello(t testing.TB, serverName string) []byte {
	t.Helper()
	var sent bytes.Buffer
	_ = tls.Client(recorder{&sent}, &tls.Config{ServerName: serverName, MaxVersion: tls.VersionTLS12}).Handshake()
	return sent.Bytes()
}

// A server that wants another key asks for a second ClientHello, which comes in
// clear too: one with another name is as good as a first one.
func TestServerNameOfASecondHello(t *testing.T) {
	first, same, other := clientHello(t, "a.example.com"), clientHello(t, "a.example.com"), clientHello(t, "b.example.com")
	ccs, warning, early := []byte{0x14, 3, 3, 0, 1, 1}, []byte{0x15, 3, 3, 0, 2, 1, 90}, []byte{0x17, 3, 3, 0, 4, 1, 2, 3, 4}
	finished := append([]byte{0x17, 3, 3, 0, 53}, make([]byte, 53)...)
	exchange := append([]byte{0x16, 3, 3, 0, 5, 16, 0, 0, 1}, 0)
	data := bytes.Repeat(append([]byte{0x17, 3, 3, 0x40, 0}, make([]byte, 0x4000)...), 8)
	for _, tt := range []struct {
		name   string
		parts  [][]byte
		denied bool
	}{
		{"another name", [][]byte{first, other}, true},
		{"behind a change of ciphers", [][]byte{first, ccs, other}, true},
		{"behind two and a warning", [][]byte{first, ccs, warning, ccs, other}, true},
		{"behind early data", [][]byte{first, ccs, early, early, other}, true},
		{"behind an empty record", [][]byte{first, {0x16, 3, 3, 0, 0}, other}, true},
		{"a third one", [][]byte{first, same, ccs, other}, true},
		{"in records of one byte", [][]byte{first, ccs, pieces(other, 300)}, true},
		{"its first bytes alone", [][]byte{first, ccs, pieces(other, 2)}, true},
		{"the first in records of one byte", [][]byte{pieces(first, 300), pieces(other, 3)}, true},
		{"in the record of the first", [][]byte{joined(first, other)}, true},
		{"in the record of the second", [][]byte{first, joined(same, other)}, true},
		{"one that is none", [][]byte{first, {0x16, 3, 3, 0, 5, 1, 0, 0, 1, 0}}, true},
		{"a record that is too long", [][]byte{first, {0x16, 3, 3, 0xff, 0xff}, make([]byte, 0xffff), other}, true},

		{"the same name", [][]byte{first, ccs, same, finished, data}, false},
		{"the same name in records of one byte", [][]byte{pieces(first, 20), ccs, pieces(same, 20), finished}, false},
		{"no name", [][]byte{first, ccs, clientHello(t, "")}, false},
		{"none", [][]byte{first, ccs, finished, data}, false},
		{"TLS 1.2", [][]byte{tls12Hello(t, "a.example.com"), exchange, ccs, finished, data}, false},
		{"TLS 1.2 of a client that has 1.3", [][]byte{first, exchange, ccs, finished, data}, false},
		// In TLS 1.2 a session that goes on has an encrypted record next, which may begin as anything.
		{"TLS 1.2, a session that goes on", [][]byte{tls12Hello(t, "a.example.com"), ccs, {0x16, 3, 3, 0, 5, 1, 0, 0, 1, 0}}, false},
		{"an end within a record", [][]byte{first, ccs, finished[:20]}, false},
		{"an end within a header", [][]byte{first, ccs[:3]}, false},
	} {
		for _, chunk := range []int{1 << 20, 7} {
			for _, by := range []string{"connect", "socks"} {
				t.Run(fmt.Sprintf("%s, %d, %s", tt.name, chunk, by), func(t *testing.T) {
					sent := slices.Concat(tt.parts...)
					if chunk < 10 && len(sent) > 64<<10 {
						sent = sent[:64<<10]
					}
					address, heard := sink(t)
					r := newRig(t, "")
					r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
					r.publish("a.example.com", "93.184.215.14", address, 443)
					var guest net.Conn
					if by == "connect" {
						guest, _ = r.connect("a.example.com:443")
					} else {
						guest = r.dial()
						_, _ = io.WriteString(guest, "\x05\x01\x00\x05\x01\x00\x03\x0da.example.com\x01\xbb")
						if _, err := io.ReadFull(guest, make([]byte, 12)); err != nil {
							t.Fatal(err)
						}
					}
					_ = guest.SetDeadline(time.Now().Add(patience))
					for part := range slices.Chunk(sent, chunk) {
						if _, err := guest.Write(part); err != nil {
							break // it was refused on the way
						}
					}
					_ = guest.(*net.UnixConn).CloseWrite()
					got := heard()
					if tt.denied != (len(got) < len(sent)) || !bytes.HasPrefix(sent, got) || bytes.Contains(got, []byte("b.example.com")) {
						t.Errorf("%d of %d bytes arrived", len(got), len(sent))
					}
					answer, _ := io.ReadAll(guest)
					end := r.ended(1)[0]
					if tt.denied != (end.End == EndDenied) || tt.denied && len(answer) > 0 && !bytes.Equal(answer, alertUnrecognizedName) {
						t.Errorf("the tunnel = %+v, the guest hears %x", end, answer)
					}
				})
			}
		}
	}
}

// A real handshake with a second ClientHello, and what follows.
func TestServerAsksForASecondHello(t *testing.T) {
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	}))
	up.TLS = &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}}
	up.StartTLS()
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 443)
	text := strings.Repeat("hello ", 50_000)
	res, err := r.client().Post("https://a.example.com/", "text/plain", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err != nil || string(got) != text {
		t.Errorf("%d bytes came back, %v; want %d", len(got), err, len(text))
	}
	if !res.TLS.HelloRetryRequest {
		t.Error("the server asked for no second hello")
	}
}

// What is denied by name is denied at an address too, as far as TLS tells.
func TestDeniedNameAtAnAddress(t *testing.T) {
	for name, denied := range map[string]bool{"evil.example": true, "EVIL.example": true, "sub.bad.example": true, "good.example": false, "": false} {
		address, heard := sink(t)
		r := newRig(t, "")
		r.policy = sandbox.Policy{Mode: sandbox.NetworkOpen, Deny: []string{"evil.example:443", "*.bad.example"}}
		r.publish("unused.example", "93.184.215.14", address, 443)
		guest, _ := r.connect("93.184.215.14:443")
		_, _ = guest.Write(clientHello(t, name))
		_ = guest.(*net.UnixConn).CloseWrite()
		if got := heard(); denied != (len(got) == 0) {
			t.Errorf("%q: %d bytes arrived", name, len(got))
		}
		ds := r.seen()
		if last := ds[len(ds)-1]; last.Allow == denied || denied && last.Rule != RuleDeny {
			t.Errorf("%q: decisions %+v", name, ds)
		}
	}
}
