//go:build root && long

package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/store/postgrestest"
	"github.com/cubbyhq/cubby/test/harness"
)

const (
	gitName      = "git.example.com"
	databaseName = "db.example.com"
)

// TestRealProgramsWithoutProxy runs what people use, untouched, in sandboxes
// whose environment names no proxy: package installers and HTTP libraries with
// the public registries, git over ssh with OpenSSH's server, and psql with
// PostgreSQL. Each host is allowed by its name, the last two with their port.
func TestRealProgramsWithoutProxy(t *testing.T) {
	registries := reachRegistries(t)
	if registries.unreachable != nil {
		t.Fatalf("this machine does not reach the registries: %v", registries.unreachable)
	}
	repo, key, sshPort := sshServer(t)
	database, databasePort := databaseServer(t)
	fetcher := buildGo(t, goFetch)
	unnamed := false
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			h := newReal(t, harness.Options{Program: named(t, gitName, databaseName)})
			url, err := h.start([]string{"--egress-allow", strings.Join(append(registries.local, elsewhere), ",")})
			if err != nil {
				t.Fatal(err)
			}
			c := sdk.New(url)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			timeout := 900.0
			if _, err := c.Create(ctx, sdk.CreateOptions{
				ID: "a", Isolation: isolation, User: "root", ExecTimeoutSeconds: &timeout,
				Network: &sdk.Network{ProxyEnv: &unnamed, Allow: []string{
					"pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "index.crates.io", "static.crates.io", "deb.debian.org", "proxy.golang.org",
					gitName + ":" + sshPort, databaseName + ":" + databasePort,
				}},
			}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Create(ctx, sdk.CreateOptions{ID: "r", Isolation: isolation, Image: "r", Network: &sdk.Network{ProxyEnv: &unnamed}}); err != nil {
				t.Fatal(err)
			}
			// As install.packages reads an index.
			const read = `download.file("https://pypi.org/simple/six/", "six", quiet = TRUE); cat(any(grepl("six-1", readLines("six"))))`
			if e, err := c.Exec(ctx, "r", sdk.Command("Rscript", "-e", read)); err != nil || e.Stdout != "TRUE" {
				t.Errorf("R: %v %+v", err, e)
			}
			for path, from := range map[string]string{"/workspace/key": key, "/workspace/fetch": fetcher} {
				f, err := os.Open(from)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if _, err := c.Files("a").Write(ctx, path, f, sdk.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			for _, tt := range []struct{ what, line, want string }{
				{"apt", "apt-get update -qq && apt-get install -y -qq postgresql-client cargo >/dev/null 2>&1; which psql cargo | wc -l", "2\n"},
				{"pip", "python3 -m venv v && v/bin/pip -q install --no-cache-dir --disable-pip-version-check aiohttp httpx && ls v/bin/httpx", "v/bin/httpx\n"},
				{"aiohttp", `v/bin/python -c "
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as s, s.get('https://pypi.org/simple/six/') as r:
        print(r.status)
asyncio.run(main())"`, "200\n"},
				{"httpx", `v/bin/python -c "import httpx; print(httpx.get('https://pypi.org/simple/six/').status_code)"`, "200\n"},
				{"npm", "mkdir n && cd n && npm install --silent --no-audit --no-fund axios undici@6 && ls -d node_modules/axios", "node_modules/axios\n"},
				{"axios", `cd n && node -e "require('axios').get('https://registry.npmjs.org/is-number').then(r => console.log(r.status))"`, "200\n"},
				{"undici", `cd n && node -e "require('undici').request('https://registry.npmjs.org/is-number').then(r => { console.log(r.statusCode); r.body.dump() })"`, "200\n"},
				{"cargo", "cargo new -q demo && cd demo && cargo add -q itoa && cargo run -q", "Hello, world!\n"},
				{"Go", "chmod +x fetch && ./fetch https://proxy.golang.org/golang.org/x/sys/@v/v0.1.0.info | grep -o v0.1.0", "v0.1.0\n"},
				{"git over ssh", "chmod 600 key && GIT_SSH_COMMAND='ssh -i /workspace/key -o StrictHostKeyChecking=accept-new' git clone -q ssh://root@" + gitName + ":" + sshPort + repo + " cloned && cat cloned/README", "from the server\n"},
				{"psql", "psql 'host=" + databaseName + " port=" + databasePort + " user=postgres dbname=" + database + "' -Atc 'select 6*7'", "42\n"},
				// The rules have ports.
				{"another port", "timeout 60 bash -c 'exec 3<>/dev/tcp/" + databaseName + "/" + sshPort + " && cat <&3' 2>&1 | grep -oi 'reset by peer' | head -1", "reset by peer\n"},
			} {
				e, err := c.Exec(ctx, "a", sdk.Shell("cd /workspace; "+tt.line))
				if err != nil {
					t.Fatalf("%s: %v", tt.what, err)
				}
				if !strings.EqualFold(e.Stdout, tt.want) {
					t.Errorf("%s: %v: %q, want %q\n%s", tt.what, e.Err(), e.Stdout, tt.want, e.Stderr)
				}
			}
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// hostRun runs a command of the host in a directory.
func hostRun(t *testing.T, dir string, argv ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", argv, err, out)
	}
}

// sshServer runs Debian's sshd on elsewhere, unpacked for the test and in a
// mount namespace of its own, for root with a key and one repository.
func sshServer(t *testing.T) (repo, key, port string) {
	t.Helper()
	dir := harness.TempDir(t)
	l, err := net.Listen("tcp", elsewhere+":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(l.Addr().String())
	l.Close()
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": string(passwd) + "sshd:x:64999:65534::/run/sshd:/usr/sbin/nologin\n",
		"config": fmt.Sprintf("ListenAddress %s:%s\nHostKey %s/host\nAuthorizedKeysFile %s/key.pub\nPermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\n", elsewhere, port, dir, dir),
		"start": fmt.Sprintf(`set -e
cd %s
mount -t tmpfs none /run
mkdir /run/sshd
awk -F: '$1 != "sshd" || !seen++' passwd >users
mount --bind users /etc/passwd
export LD_LIBRARY_PATH=$(dirname "$(find "$PWD" -name 'libwrap.so.0')")
exec "$PWD/usr/sbin/sshd" -D -e -f "$PWD/config"
`, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hostRun(t, dir, "sh", "-ec", `apt-get download -qq openssh-server libwrap0 && for f in *.deb; do dpkg -x $f .; done
ssh-keygen -q -t ed25519 -N '' -f key && ssh-keygen -q -t ed25519 -N '' -f host
git init -q -b main work && cd work && echo from the server >README && git add . && git -c user.name=a -c user.email=a@b commit -qm one && git clone -q --bare . ../repo.git`)
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", filepath.Join(dir, "start"))
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("sshd: %s", log.String())
		}
	})
	eventually(t, patience, "sshd answers", func() bool {
		c, err := net.Dial("tcp", elsewhere+":"+port)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return dir + "/repo.git", dir + "/key", port
}

// databaseServer has a database of a PostgreSQL server, which listens on a UNIX
// socket, at a port of elsewhere.
func databaseServer(t *testing.T) (database, port string) {
	t.Helper()
	u, err := url.Parse(postgrestest.New(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", elsewhere+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				server, err := net.Dial("unix", filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432"))
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, c) }()
				_, _ = io.Copy(c, server)
			}()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return strings.TrimPrefix(u.Path, "/"), port
}
