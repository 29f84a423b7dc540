//go:build root

package resources_test

import (
	"bufio"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/cubbyhq/cubby/test/harness"
)

const proxyKey = "a-key-of-the-egress-proxy"

// proxyClaims are a good token's.
func proxyClaims(session string, allowed ...string) jwt.MapClaims {
	return jwt.MapClaims{
		"iss": "sandbox-egress-control", "exp": time.Now().Add(time.Hour).Unix(),
		"session_id": session, "allowed_hosts": allowed,
	}
}

func signed(t *testing.T, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, c).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// startProxy runs cubby egress-proxy, which may reach what is named.
func startProxy(t *testing.T, allow string) *daemon {
	t.Helper()
	cmd := exec.Command(harness.Program(t), "egress-proxy", "--listen", "127.0.0.1:0", "--allow", allow)
	cmd.Env = append(os.Environ(), "CUBBY_EGRESS_SIGNING_KEY="+proxyKey)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, pid: cmd.Process.Pid}
	lines := bufio.NewReader(log)
	for d.address == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("the proxy did not start: %v", err)
		}
		if _, text, ok := strings.Cut(line, "listen="); ok {
			d.address, _, _ = strings.Cut(text, " ")
		}
	}
	var rest sync.WaitGroup
	rest.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		rest.Wait()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	})
	return d
}

// from connects from an address of the host's own and sends what is given, as
// far as the proxy takes it.
func (d *daemon) from(address, text string) net.Conn {
	d.t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: time.Minute}
	conn, err := dialer.Dial("tcp", d.address)
	if err != nil {
		d.t.Error(err)
		return nil
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(conn, text) // it may have closed already
	return conn
}

// answer is the status of what the proxy answers; 0 for a connection that it
// ended.
func (d *daemon) answer(conn net.Conn) int {
	if conn == nil {
		return 0
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	return res.StatusCode
}

// A proxy of its own, flooded by who has no token, by who has a wrong one, and by
// a session that has a good one, takes little memory, serves the others all the
// while, and ends in good order.
func TestFloodsOfTheEgressProxy(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "reached") }))
	t.Cleanup(site.Close)
	host := site.Listener.Addr().String()
	d := startProxy(t, host)
	request := func(to, token string) string {
		return "GET http://" + to + "/ HTTP/1.1\r\nHost: " + to + "\r\nProxy-Authorization: Bearer " + token + "\r\n\r\n"
	}
	good := signed(t, jwt.SigningMethodHS256, []byte(proxyKey), proxyClaims("good", "127.0.0.1"))
	served := func(while string) {
		t.Helper()
		if got := d.answer(d.from("127.0.0.9", request(host, good))); got != http.StatusOK {
			t.Errorf("%s: another session got %d", while, got)
		}
		d.bounded(while)
	}
	served("nothing")

	t.Run("tokens", func(t *testing.T) {
		pair, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			t.Fatal(err)
		}
		with := func(change func(jwt.MapClaims)) string {
			c := proxyClaims("bad", "127.0.0.1")
			change(c)
			return signed(t, jwt.SigningMethodHS256, []byte(proxyKey), c)
		}
		named := jwt.NewWithClaims(jwt.SigningMethodHS256, proxyClaims("bad", "127.0.0.1"))
		named.Header["kid"] = "../../etc/passwd"
		other, err := named.SignedString([]byte(proxyKey))
		if err != nil {
			t.Fatal(err)
		}
		for name, token := range map[string]string{
			"none":          "",
			"no signature":  signed(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, proxyClaims("bad", "127.0.0.1")),
			"HS512":         signed(t, jwt.SigningMethodHS512, []byte(proxyKey), proxyClaims("bad", "127.0.0.1")),
			"RS256":         signed(t, jwt.SigningMethodRS256, pair, proxyClaims("bad", "127.0.0.1")),
			"another key":   signed(t, jwt.SigningMethodHS256, []byte("another-key-of-a-proxy"), proxyClaims("bad", "127.0.0.1")),
			"kid of a file": other,
			"expired":       with(func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-time.Hour).Unix() }),
			"no end":        with(func(c jwt.MapClaims) { delete(c, "exp") }),
			"not yet":       with(func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(time.Hour).Unix() }),
			"other issuer":  with(func(c jwt.MapClaims) { c["iss"] = "somebody" }),
			"no session":    with(func(c jwt.MapClaims) { delete(c, "session_id") }),
			"a number":      with(func(c jwt.MapClaims) { c["allowed_hosts"] = 7 }),
			"an odd mode":   with(func(c jwt.MapClaims) { c["mode"] = "everything" }),
			"a large one":   with(func(c jwt.MapClaims) { c["allowed_hosts"] = strings.Repeat("a.example,", 2500) }),
		} {
			if got := d.answer(d.from("127.0.0.2", request(host, token))); got != http.StatusProxyAuthRequired {
				t.Errorf("a token of the kind %q got %d, want 407", name, got)
			}
		}
	})

	// From each address 1,024 may wait; what is above that is closed.
	for i, flood := range []struct {
		name string
		n    int
		text string
	}{
		{"connections that send nothing", 1100, ""},
		{"headers that do not end", 400, "GET http://x/ HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 16<<10)},
		{"fields without end", 400, "GET http://x/ HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 4000)},
		{"greetings of SOCKS", 200, "\x05\xff"},
		{"hellos of TLS", 200, "\x16\x03\x01\xff\xff\x01"},
	} {
		crowd(flood.n, func() { d.from(fmt.Sprintf("127.0.1.%d", i+1), flood.text) })
		served(flood.name)
	}
	crowd(100, func() {
		d.from("127.0.0.3", "GET http://x/ HTTP/1.1\r\nX: "+strings.Repeat("a", 1<<20))
	})
	served("huge headers")

	greedy := signed(t, jwt.SigningMethodHS256, []byte(proxyKey), proxyClaims("greedy", "127.0.0.1", "*.invalid"))
	var mu sync.Mutex
	got := make(map[int]int)
	crowd(2200, func() {
		answer := d.answer(d.from("127.0.0.4", request(host, greedy)))
		mu.Lock()
		defer mu.Unlock()
		got[answer]++
	})
	if got[http.StatusOK] != 2048 || got[http.StatusServiceUnavailable] != 152 {
		t.Errorf("2200 connections of a session got %v", got)
	}
	served("connections of one session")
	names := signed(t, jwt.SigningMethodHS256, []byte(proxyKey), proxyClaims("names", "*.invalid"))
	var looked sync.WaitGroup
	for i := range 100 {
		conn := d.from("127.0.0.5", request(fmt.Sprintf("name%d.invalid", i), names))
		looked.Go(func() {
			if got := d.answer(conn); got != http.StatusBadGateway && got != 0 {
				t.Errorf("a name that nobody has got %d", got)
			}
		})
	}
	served("names that nobody has")
	looked.Wait()
	served("everything")
}
