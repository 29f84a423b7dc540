package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/proxy"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// socksClient is an HTTP client that reaches everything through SOCKS.
func (r *rig) socksClient() *http.Client {
	dialer, err := proxy.SOCKS5("tcp", "127.0.0.1:3128", nil, guestDialer{r})
	if err != nil {
		r.t.Fatal(err)
	}
	tr := &http.Transport{DialContext: dialer.(proxy.ContextDialer).DialContext}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

type guestDialer struct{ r *rig }

func (d guestDialer) Dial(string, string) (net.Conn, error) { return d.r.dial(), nil }

func (d guestDialer) DialContext(context.Context, string, string) (net.Conn, error) {
	return d.r.dial(), nil
}

func TestSocks(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer up.Close()
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com", "93.184.215.15"}}
	r.publish("a.example.com", "93.184.215.14", hostOf(up.URL), 80)
	r.publish("unused.example.com", "93.184.215.15", hostOf(up.URL), 80)
	for _, u := range []string{"http://a.example.com/", "http://93.184.215.15/"} {
		if code, body, _ := get(t, r.socksClient(), u); code != 200 || body != "hello" {
			t.Errorf("GET %s = %d %q", u, code, body)
		}
	}
	for _, u := range []string{"http://b.example.com/", "http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/"} {
		if _, err := r.socksClient().Get(u); err == nil {
			t.Errorf("GET %s was let through", u)
		}
	}
	ds := r.seen()
	if len(ds) != 6 || ds[0].Address != netip.MustParseAddrPort("93.184.215.14:80") || !ds[1].Allow || ds[2].Allow || ds[5].Allow {
		t.Errorf("decisions = %+v", ds)
	}
}

func TestSocksAnswers(t *testing.T) {
	name := func(host string) string {
		return "\x05\x01\x00\x05\x01\x00\x03" + string(rune(len(host))) + host + "\x00\x50"
	}
	agreed := "\x05\x00"
	reply := func(code byte) string { return agreed + string(socksReply(code)) }
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"gone.example.com"}}
	for what, tt := range map[string]struct{ in, out string }{
		"not allowed":            {name("b.example.com"), reply(socksNotAllowed)},
		"a name that nobody has": {name("gone.example.com"), reply(socksNoHost)},
		"a malformed name":       {name("a\r\nb"), reply(socksNotAllowed)},
		"no name":                {name(""), reply(socksNotAllowed)},
		"a password is wanted":   {"\x05\x01\x02", "\x05\xff"},
		"no methods":             {"\x05\x00", "\x05\xff"},
		"bind":                   {"\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50", reply(socksNoCommand)},
		"udp":                    {"\x05\x01\x00\x05\x03\x00\x01\x01\x02\x03\x04\x00\x50", reply(socksNoCommand)},
		"an unknown address":     {"\x05\x01\x00\x05\x01\x00\x09", reply(socksNoAddress)},
		"port 0":                 {"\x05\x01\x00\x05\x01\x00\x01\x01\x02\x03\x04\x00\x00", reply(socksFailure)},
		"another version":        {"\x05\x01\x00\x04\x01\x00\x01", agreed},
	} {
		guest := r.dial()
		_ = guest.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(guest, tt.in); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if out, err := io.ReadAll(guest); err != nil || string(out) != tt.out {
			t.Errorf("%s: the answer is %q, %v; want %q", what, out, err, tt.out)
		}
		guest.Close()
	}
}

func FuzzSocks(f *testing.F) {
	f.Add([]byte("\x01\x00\x05\x01\x00\x03\x09localhost\x00\x50"))
	f.Add([]byte("\x02\x00\x02\x05\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x01\xbb"))
	f.Fuzz(func(t *testing.T, in []byte) {
		conn := struct {
			io.Reader
			io.Writer
		}{bytes.NewReader(in), io.Discard}
		hostname, port, refusal := readSocks(conn)
		if (refusal == nil) != (port > 0) || port > 65535 || len(hostname) > 255 {
			t.Fatalf("readSocks(%q) = %q, %d, %q", in, hostname, port, refusal)
		}
	})
}
