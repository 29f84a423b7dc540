package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// clientHello is what Go's client sends first.
func clientHello(t testing.TB, serverName string) []byte {
	t.Helper()
	var sent bytes.Buffer
	c := tls.Client(recorder{&sent}, &tls.Config{ServerName: serverName, InsecureSkipVerify: serverName == ""}) //nolint:gosec // nothing answers
	_ = c.Handshake()
	return sent.Bytes()
}

// longHello is a ClientHello that servers take, in records of one byte each: more
// bytes than any hello may have.
func longHello(t testing.TB, serverName string) []byte {
	t.Helper()
	var sent bytes.Buffer
	protocols := slices.Repeat([]string{strings.Repeat("a", 255)}, 100)
	c := tls.Client(recorder{&sent}, &tls.Config{ServerName: serverName, NextProtos: protocols})
	_ = c.Handshake()
	message := sent.Bytes()[5:]
	var out []byte
	for _, b := range message {
		out = append(out, 0x16, 3, 1, 0, 1, b)
	}
	if len(out) <= maxHello {
		t.Fatalf("%d bytes are no long hello", len(out))
	}
	return out
}

// joined is two messages in one record.
func joined(a, b []byte) []byte {
	body := slices.Concat(a[recordHeader:], b[recordHeader:])
	return append(binary.BigEndian.AppendUint16([]byte{recordHandshake, 3, 1}, uint16(len(body))), body...)
}

// recorder keeps what is written and has nothing to read.
type recorder struct{ to *bytes.Buffer }

func (r recorder) Read([]byte) (int, error)         { return 0, io.EOF }
func (r recorder) Write(p []byte) (int, error)      { return r.to.Write(p) }
func (r recorder) Close() error                     { return nil }
func (r recorder) LocalAddr() net.Addr              { return nil }
func (r recorder) RemoteAddr() net.Addr             { return nil }
func (r recorder) SetDeadline(time.Time) error      { return nil }
func (r recorder) SetReadDeadline(time.Time) error  { return nil }
func (r recorder) SetWriteDeadline(time.Time) error { return nil }

func TestHello(t *testing.T) {
	named := clientHello(t, "a.example.com")
	warning, closing := []byte{0x15, 3, 1, 0, 2, 1, 90}, []byte{0x15, 3, 1, 0, 2, 1, 0}
	for _, tt := range []struct {
		name  string
		in    []byte
		host  string
		isTLS bool
		bad   bool
	}{
		{"named", named, "a.example.com", true, false},
		{"unnamed", clientHello(t, ""), "", true, false},
		{"behind a warning", slices.Concat(warning, named), "a.example.com", true, false},
		{"behind an alert that closes", slices.Concat(closing, named), "", false, true},
		{"behind a change of ciphers", slices.Concat([]byte{0x14, 3, 3, 0, 1, 1}, named), "", false, true},
		{"longer than a hello", longHello(t, "a.example.com"), "", false, true},
		{"with more in its record", joined(named, named), "", false, true},
		{"not TLS", []byte("SSH-2.0-x\r\n"), "", false, false},
		{"garbage in a record", append([]byte{0x16, 3, 1, 0, 4}, "abcd"...), "", false, true},
		{"no record", []byte{0x16, 0xff, 0xff, 0xff, 0xff, 0, 0}, "", false, true},
		{"another handshake message", []byte{0x16, 3, 1, 0, 4, 2, 0, 0, 0}, "", false, true},
	} {
		for way, from := range map[string]io.Reader{"at once": bytes.NewReader(tt.in), "byte by byte": iotest.OneByteReader(bytes.NewReader(tt.in))} {
			read, info, err := hello(from)
			var host string
			if info != nil {
				host = info.ServerName
			}
			if host != tt.host || (info != nil) != tt.isTLS || errors.Is(err, errs.Invalid) != tt.bad || !bytes.HasPrefix(tt.in, read) {
				t.Errorf("%s, %s: hello = %d bytes, %q, %v, %v", tt.name, way, len(read), host, info != nil, err)
			}
			rest, _ := io.ReadAll(from)
			if err == nil && !bytes.Equal(append(read, rest...), tt.in) {
				t.Errorf("%s, %s: bytes were lost", tt.name, way)
			}
		}
	}
	if _, _, err := hello(bytes.NewReader(named[:20])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a hello = %v", err)
	}
}

func TestServerNameIsTheHostThatWasAllowed(t *testing.T) {
	up := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com", "93.184.215.15"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 443)
	r.publish("b.example.com", "93.184.215.15", hostOf(up.URL), 443)
	for _, tt := range []struct {
		target, serverName string
		ok                 bool
	}{
		{"a.example.com:443", "a.example.com", true},
		{"A.Example.Com.:443", "a.example.com", true},
		{"a.example.com:443", "A.EXAMPLE.COM", true},
		{"a.example.com:443", "", true},
		{"93.184.215.15:443", "b.example.com", true},
		{"a.example.com:443", "b.example.com", false},
		{"a.example.com:443", "evil.a.example.com", false},
		{"a.example.com:443", "localhost", false},
	} {
		before := len(r.seen())
		guest := r.dial()
		fmt.Fprintf(guest, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", tt.target, tt.target)
		res, err := http.ReadResponse(bufio.NewReader(guest), nil)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("CONNECT %s = %v, %v", tt.target, res, err)
		}
		c := tls.Client(guest, &tls.Config{ServerName: tt.serverName, InsecureSkipVerify: true}) //nolint:gosec // the name is what is tested
		err = c.Handshake()
		if (err == nil) != tt.ok {
			t.Errorf("%s asking for %q: %v, want ok %v", tt.target, tt.serverName, err, tt.ok)
		}
		if !tt.ok && err != nil && !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s asking for %q: %v, want the alert unrecognized_name", tt.target, tt.serverName, err)
		}
		guest.Close()
		ds := r.seen()[before:]
		if last := ds[len(ds)-1]; last.Allow != tt.ok || !tt.ok && last.Rule != RuleServerName {
			t.Errorf("%s asking for %q: decisions %+v", tt.target, tt.serverName, ds)
		}
	}
}

// A server that speaks first is heard although the guest says nothing.
func TestServerSpeaksFirst(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprint(c, "SSH-2.0-server\r\n")
		_, _ = io.Copy(c, c)
	}()
	r := newRig(t, "")
	r.publish("git.example.com", "93.184.215.14", l.Addr().String(), 22)
	guest := r.dial()
	defer guest.Close()
	fmt.Fprint(guest, "CONNECT git.example.com:22 HTTP/1.1\r\nHost: git.example.com:22\r\n\r\n")
	from := bufio.NewReader(guest)
	if res, err := http.ReadResponse(from, nil); err != nil || res.StatusCode != 200 {
		t.Fatalf("CONNECT = %v, %v", res, err)
	}
	if line, err := from.ReadString('\n'); err != nil || line != "SSH-2.0-server\r\n" {
		t.Fatalf("the server's line = %q, %v", line, err)
	}
	fmt.Fprint(guest, "SSH-2.0-client\r\n")
	if line, err := from.ReadString('\n'); err != nil || line != "SSH-2.0-client\r\n" {
		t.Errorf("the echo = %q, %v", line, err)
	}
}

func FuzzHello(f *testing.F) {
	f.Add(slices.Concat([]byte{0x15, 3, 1, 0, 2, 1, 90}, clientHello(f, "a.example.com")))
	f.Add(clientHello(f, "a.example.com"))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add([]byte{0x16, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		from := bytes.NewReader(b)
		read, info, err := hello(from)
		if err != nil && !errors.Is(err, errs.Invalid) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("hello = %v", err)
		}
		if !bytes.HasPrefix(b, read) || info != nil && err != nil {
			t.Fatalf("hello(%q) = %q, %v, %v", b, read, info, err)
		}
		if err == nil && len(read)+from.Len() != len(b) {
			t.Fatalf("%d of %d bytes were lost", len(b)-len(read)-from.Len(), len(b))
		}
	})
}
