//go:build root && long

package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestRealWorld installs packages from the public registries in a gVisor
// sandbox through the default list of hosts, and is refused a host that is not
// on it: directly, and through a proxy of its own. Where this machine does not
// reach the registries by their names, that part is skipped and says so.
func TestRealWorld(t *testing.T) {
	program := harness.Program(t)
	registries := reachRegistries(t)
	const key = "a key for the real world"
	for _, mode := range []string{"direct", "egress-proxy"} {
		t.Run(mode, func(t *testing.T) {
			// A mirror that answers to the registries' names on this network
			// is the operator's to allow.
			flags := []string{"--egress-allow", strings.Join(registries.local, ",")}
			if mode == "egress-proxy" {
				proxy := startEgressProxy(t, program, key, registries.local)
				flags = append(flags, "--egress-proxy", "http://"+proxy, "--egress-signing-key", key)
			}
			h := newReal(t, harness.Options{})
			url, err := h.start(flags)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			c := sdk.New(url)
			if _, err := c.Create(ctx, sdk.CreateOptions{ID: "a", Isolation: "gvisor", User: "root"}); err != nil {
				t.Fatal(err)
			}
			run := func(line string) sdk.Exec {
				t.Helper()
				e, err := c.Exec(ctx, "a", sdk.Shell(line))
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				return e
			}
			t.Run("denied", func(t *testing.T) {
				if e := run("curl -sS https://example.com"); e.Err() == nil || !strings.Contains(e.Stderr, "403") {
					t.Errorf("curl = %v %q %q", e.Err(), e.Stdout, e.Stderr)
				}
				// curl does not show what the proxy says of a tunnel.
				for _, request := range []string{`CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n`, `GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n`} {
					e := run(`exec 3<>/dev/tcp/127.0.0.1/3128 && printf '` + request + `' >&3 && timeout 60 cat <&3`)
					if !strings.HasPrefix(e.Stdout, "HTTP/1.1 403 ") || !strings.Contains(e.Stdout, "\r\n\r\nHost not allowed: example.com\n") {
						t.Errorf("%s = %q %q", request, e.Stdout, e.Stderr)
					}
				}
			})
			t.Run("registries", func(t *testing.T) {
				if registries.unreachable != nil {
					t.Skipf("NOT CHECKED: this machine does not reach the registries: %v", registries.unreachable)
				}
				// The tunnel stands and the server's certificate is trusted;
				// what a mirror says at / is its own affair.
				if e := run(`curl -sS -o /dev/null -w '%{http_connect} %{scheme}' https://pypi.org`); e.Err() != nil || !strings.EqualFold(e.Stdout, "200 https") {
					t.Errorf("curl https://pypi.org = %v %q %q", e.Err(), e.Stdout, e.Stderr)
				}
				g := newGRPCClient(t, strings.TrimPrefix(url, "http://"))
				g.id = "a"
				var out sandboxv1.ExecResponse
				g.call("PipInstall", &sandboxv1.PipInstallRequest{SessionId: "a", Packages: []string{"requests"}}, &out)
				if out.GetExitCode() != 0 || out.GetTimedOut() {
					t.Errorf("PipInstall = %v", &out)
				}
				for _, line := range []string{
					"python3 -m venv fresh && fresh/bin/pip install --no-cache-dir --disable-pip-version-check requests && fresh/bin/python -c 'import requests; print(requests.__version__)'",
					"mkdir node && cd node && npm install --no-audit --no-fund is-number && node -p \"require('is-number')(5)\"",
				} {
					if e := run(line); e.Err() != nil {
						t.Errorf("%s: %v\n%s\n%s", line, e.Err(), e.Stdout, e.Stderr)
					}
				}
			})
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// registries is how this machine reaches pypi.org and registry.npmjs.org.
type registries struct {
	unreachable error    // nil: their own clients reach them
	local       []string // addresses of theirs that are not of the public Internet
}

// reachRegistries asks each registry with its own client, without a proxy or a
// mirror in between, as the daemon's egress proxy would.
func reachRegistries(t *testing.T) (r registries) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for _, host := range []string{"pypi.org", "files.pythonhosted.org", "registry.npmjs.org"} {
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return registries{unreachable: err}
		}
		for _, a := range addrs {
			if a = a.Unmap(); !ofInternet(a) && !slices.Contains(r.local, a.String()) {
				r.local = append(r.local, a.String())
			}
		}
	}
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name = strings.ToUpper(name); !strings.HasSuffix(name, "_PROXY") && name != "PIP_INDEX_URL" && name != "PIP_EXTRA_INDEX_URL" && name != "NPM_CONFIG_REGISTRY" {
			env = append(env, v)
		}
	}
	for _, argv := range [][]string{
		{"python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir", "--timeout", "20", "--retries", "1", "--index-url", "https://pypi.org/simple", "--dest", t.TempDir(), "requests"},
		{"npm", "view", "--registry", "https://registry.npmjs.org/", "--fetch-retries", "1", "--fetch-timeout", "20000", "is-number", "version"},
	} {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env, cmd.Dir = env, t.TempDir()
		cmd.WaitDelay = 10 * time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			r.unreachable = errors.Join(errors.New(strings.Join(argv, " ")), err, errors.New(string(out)))
		}
	}
	return r
}

// ofInternet reports that the egress proxy lets a name lead to an address
// without being told to.
func ofInternet(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() &&
		!netip.MustParsePrefix("100.64.0.0/10").Contains(a) && !netip.MustParsePrefix("198.18.0.0/15").Contains(a)
}

// startEgressProxy runs the program's proxy until the test ends, and returns
// its address.
func startEgressProxy(t *testing.T, program, key string, allow []string) string {
	t.Helper()
	cmd := exec.Command(program, "egress-proxy", "--listen", "127.0.0.1:0", "--allow", strings.Join(allow, ","))
	cmd.Env = append(os.Environ(), "CUBBY_EGRESS_SIGNING_KEY="+key)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		in := bufio.NewScanner(log)
		for first := true; in.Scan(); first = false {
			if first {
				lines <- in.Text()
			}
		}
		close(lines)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		over := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		<-drained
		if err := cmd.Wait(); err != nil {
			t.Errorf("the egress proxy ended with: %v", err)
		}
		over.Stop()
	})
	select {
	case line := <-lines:
		_, address, ok := strings.Cut(line, "listen=")
		if address, _, _ = strings.Cut(address, " "); !ok {
			t.Fatalf("the egress proxy says %q", line)
		}
		return address
	case <-time.After(time.Minute):
		t.Fatal("the egress proxy does not say where it listens")
	}
	return ""
}
