//go:build root

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/git/gittest"
	"github.com/cubbyhq/cubby/test/harness"
)

// goodName is a name of elsewhere, for daemons of [named].
const goodName = "good.example.com"

// named is a program of a host on which names lead elsewhere.
func named(t *testing.T, names ...string) (program string) {
	t.Helper()
	dir := harness.TempDir(t)
	hosts, program := filepath.Join(dir, "hosts"), filepath.Join(dir, "cubby")
	wrapper := fmt.Sprintf("#!/bin/sh\nexec unshare --mount --propagation private sh -c 'mount --bind %s /etc/hosts && exec %s \"$@\"' cubby \"$@\"\n", hosts, harness.Program(t))
	known, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{hosts: string(known) + "\n" + elsewhere + " " + strings.Join(names, " ") + "\n", program: wrapper} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return program
}

// goFetch is a program that knows nothing of proxies.
const goFetch = `package main

import (
	"io"
	"net/http"
	"os"
)

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(os.Stdout, answer.Body)
}
`

// buildGo builds a program that needs nothing of a sandbox.
func buildGo(t *testing.T, source string) (path string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "program")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", path, file)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// lastWords answers, on a port of elsewhere, what it was told when it has been
// told all: it needs a connection to end in one direction alone.
func lastWords(t *testing.T) (port string, broken chan error) {
	t.Helper()
	l, err := net.Listen("tcp", elsewhere+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	broken = make(chan error, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				first := make([]byte, 4)
				_, _ = io.ReadFull(c, first)
				if string(first) == "snap" { // breaks off
					fmt.Fprint(c, "half")
					_ = c.(*net.TCPConn).SetLinger(0)
					return
				}
				rest, err := io.ReadAll(c)
				if string(first) == "wait" { // longer than the host's kernel follows what has ended
					time.Sleep(3 * time.Second)
				}
				fmt.Fprintf(c, "you said %s%s", first, rest)
				broken <- err
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, broken
}

// askDNS prints the code of an answer, and what an extended error says.
const askDNS = `
import socket, struct, sys
name = sys.argv[1]
labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split(".")) + b"\0"
query = struct.pack(">6H", 7, 0x100, 1, 0, 0, 1) + labels + struct.pack(">2H", 1, 1) + b"\0" + struct.pack(">2HIH", 41, 1232, 0, 0)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
s.sendto(query, ("127.0.0.1", 53))
answer = s.recv(4096)
at = answer.find(struct.pack(">H", 15), 12 + len(labels))
size, code = struct.unpack(">2H", answer[at + 2:at + 6])
print("rcode", answer[3] & 15, "error", code, answer[at + 6:at + 4 + size].decode())
`

// TestProgramsWithoutProxy has programs that know nothing of proxies ask an
// allowed host by its name, in sandboxes whose environment names none.
func TestProgramsWithoutProxy(t *testing.T) {
	t.Parallel()
	o, authority := newOrigin(t)
	served, repoAuthority := ownAuthority(t)
	git := gittest.New(t, gittest.Options{Address: elsewhere + ":0", TLS: served})
	fetcher := buildGo(t, goFetch)
	words, broken := lastWords(t)
	trust := map[string]string{}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS"} {
		trust[name] = caFile
	}
	portOf := func(hostPort string) string { _, port, _ := net.SplitHostPort(hostPort); return port }
	unnamed := false
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newReal(t, harness.Options{Program: named(t, goodName)})
			url, err := h.start([]string{"--egress-allow", elsewhere})
			if err != nil {
				t.Fatal(err)
			}
			c := clientOf(url)
			if _, err := c.Create(t.Context(), sdk.CreateOptions{
				ID: "a", Isolation: isolation, Env: trust, Network: &sdk.Network{Allow: []string{goodName}, ProxyEnv: &unnamed},
			}); err != nil {
				t.Fatal(err)
			}
			program, err := os.Open(fetcher)
			if err != nil {
				t.Fatal(err)
			}
			defer program.Close()
			for path, content := range map[string]io.Reader{
				caFile: strings.NewReader(authority + repoAuthority), "/workspace/fetch": program, "/workspace/dns.py": strings.NewReader(askDNS),
			} {
				if _, err := c.Files("a").Write(t.Context(), path, content, sdk.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			sh(t, c, "chmod +x fetch")
			repo := strings.Replace(git.Repo(t, isolation+".git"), elsewhere, goodName, 1)
			halves := "programs-" + isolation
			for _, tt := range []struct{ what, line, want string }{
				{"no variable names a proxy", "env | grep -ic ^[a-z]*_proxy=", "0\n"},
				{"curl", "curl -sS --noproxy '*' --http1.1 HTTPS/hello && curl -sS --http2 HTTPS/hello && curl -sS HTTP/hello", "hello over HTTP/1.1\nhello over HTTP/2.0\nhello over HTTP/1.1\n"},
				{"urllib", `python3 -c "import urllib.request as r; print(r.urlopen('HTTPS/hello').read().decode(), end='')"`, "hello over HTTP/1.1\n"},
				{"http.client", `python3 -c "import http.client as h; c = h.HTTPSConnection('NAME', TLSPORT); c.request('GET', '/hello'); print(c.getresponse().read().decode(), end='')"`, "hello over HTTP/1.1\n"},
				{"Node's https", `node -e "require('https').get('HTTPS/hello', r => r.pipe(process.stdout))"`, "hello over HTTP/1.1\n"},
				{"Node's fetch", `node -e "fetch('HTTPS/hello').then(r => r.text()).then(t => process.stdout.write(t))"`, "hello over HTTP/1.1\n"},
				{"git", "git ls-remote -q REPO main | wc -l", "1\n"},
				{"Go", "./fetch HTTPS/hello && ./fetch HTTP/hello", "hello over HTTP/2.0\nhello over HTTP/1.1\n"},
				{"a socket", `exec 3<>/dev/tcp/NAME/PORT && printf 'GET /hello HTTP/1.0\r\n\r\n' >&3 && tail -1 <&3`, "hello over HTTP/1.0\n"},
				{"half a connection", `python3 -c "
import socket
s = socket.create_connection(('NAME', WORDS))
s.sendall(b'x' * 200000)
s.shutdown(socket.SHUT_WR)
print(sum(len(b) for b in iter(lambda: s.recv(65536), b'')))"`, "200009\n"},
				{"a late answer to half a connection", `python3 -c "
import socket
s = socket.create_connection(('NAME', WORDS))
s.sendall(b'wait')
s.shutdown(socket.SHUT_WR)
s.settimeout(60)
print(s.makefile().read())"`, "you said wait\n"},
				{"a host that breaks off", `python3 -c "
import socket
s = socket.create_connection(('NAME', WORDS))
s.sendall(b'snap')
try:
    for part in iter(lambda: s.recv(65536), b''):
        pass
    print('the end')
except ConnectionResetError:
    print('broken off')"`, "broken off\n"},
				{"a program that breaks off", `python3 -c "
import socket, struct, time
s = socket.create_connection(('NAME', WORDS))
s.sendall(b'half of it')
time.sleep(1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
s.close()"`, ""},
				{"an upgrade", "curl -sS --http1.1 --max-time 280 -N -H 'Connection: Upgrade' -H 'Upgrade: websocket' -H 'Sec-WebSocket-Version: 13' -H 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==' HTTPS/socket | tr -cd '[:print:]' | grep -o 'hello.*socket'", "hello from a socket\n"},
				{"half an answer", "curl -sSN --max-time 280 HTTPS/halves/HALVES | (read -r first; curl -sS HTTP/seen/HALVES; echo \"$first\"; cat)", "first\nsecond\n"},
				{"an upload that goes on", "(echo one; echo two) | curl -sSN --http1.1 --max-time 280 -T - -X POST -H 'Transfer-Encoding: chunked' HTTPS/upper", "ONE\nTWO\n"},
				{"a large upload", "yes $(head -c 9999 /dev/zero | tr '\\0' a) | head -c 10000000 | curl -sS --max-time 280 --data-binary @- HTTPS/upper | wc -c", "10000000\n"},
				// Every port is the user's own, and leads nowhere else.
				{"a server on every address", `(python3 -m http.server --bind 0.0.0.0 443 >/dev/null 2>&1 & echo $! >pid); until curl -sS -o /dev/null http://127.0.0.1:443/dns.py 2>/dev/null; do sleep 0.1; done
					curl -sS http://127.0.0.1:443/dns.py | grep -c '^import'; curl -sS http://NAME:443/dns.py | grep -o 'NAME:443 .*'; curl -sS HTTP/hello; kill $(cat pid)`, ""},
				{"a name that is denied", "python3 dns.py bad.example.org; curl -sS http://bad.example.org/ 2>&1; curl -sS http://192.0.2.1/", ""},
			} {
				line := strings.NewReplacer("HTTPS/", "https://"+goodName+":"+portOf(o.secure)+"/", "HTTP/1.0", "HTTP/1.0", "HTTP/", "http://"+goodName+":"+portOf(o.plain)+"/", "REPO", repo,
					"NAME", goodName, "TLSPORT", portOf(o.secure), "WORDS", words, "PORT", portOf(o.plain), "HALVES", halves).Replace(tt.line)
				e := sh(t, c, line)
				switch {
				case tt.want != "" && e.Stdout == tt.want:
				case tt.what == "a program that breaks off":
					var last error
					eventually(t, patience, "the host sees the program break off", func() bool {
						select {
						case last = <-broken: // the others came to their end
						default:
						}
						return errors.Is(last, syscall.ECONNRESET)
					})
				case tt.what == "a server on every address" && strings.HasPrefix(e.Stdout, "1\n"+goodName+":443 ") && strings.HasSuffix(e.Stdout, "\nhello over HTTP/1.1\n"):
				case tt.what == "a name that is denied" && strings.Contains(e.Stdout, "rcode 3 error 18 allowlist: bad.example.org is not on this sandbox's allowlist") &&
					strings.Contains(e.Stdout, "Could not resolve host") && strings.Contains(e.Stdout, "Host not allowed: 192.0.2.1"):
				default:
					t.Errorf("%s: %q, want %q\n%s", tt.what, e.Stdout, tt.want, e.Stderr)
				}
			}
			tellsTheDoor(t, c, o.plain)
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// tellsTheDoor looks at what the history and the list of connections say, and at
// what becomes of a program when its host is denied while it talks to it.
func tellsTheDoor(t *testing.T, c *sdk.Client, plain string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(plain)
	target := "http://" + goodName + ":" + port
	eventually(t, patience, "every connection came by itself", func() bool {
		_, text := call(t, "GET", c.URL()+"/v1/sandboxes/a/events?limit=1000&kinds=egress.allowed", "")
		return strings.Contains(text, `"protocol":"transparent"`) && strings.Contains(text, `"host":"`+goodName+`"`) && !strings.Contains(text, `"protocol":"connect"`)
	})
	sh(t, c, "(curl -sSN --max-time 280 "+target+"/halves/"+strings.ReplaceAll(t.Name(), "/", "-")+"-never >cut; echo $? >cut.code) >/dev/null 2>&1 & until grep -q first cut; do sleep 0.05; done; getent hosts "+goodName+" | cut -d' ' -f1 >address")
	if _, open := call(t, "GET", c.URL()+"/v1/sandboxes/a/network/connections", ""); !strings.Contains(open, `"protocol":"transparent"`) || !strings.Contains(open, goodName) {
		t.Errorf("connections = %s", open)
	}
	if _, err := c.Update(t.Context(), "a", sdk.Patch{Network: &sdk.Network{Deny: []string{goodName}}, CutConnections: true}); err != nil {
		t.Fatal(err)
	}
	e := sh(t, c, "until [ -s cut.code ]; do sleep 0.05; done; cat cut.code; curl -sS "+target+"/hello 2>&1; curl -sS http://$(cat address):"+port+"/hello")
	if strings.HasPrefix(e.Stdout, "0\n") || !strings.Contains(e.Stdout, "Could not resolve host") || !strings.Contains(e.Stdout, "cubby: egress to "+goodName+":"+port+" denied (rule deny)") {
		t.Errorf("after the policy changed: %q %s", e.Stdout, e.Stderr)
	}
}
