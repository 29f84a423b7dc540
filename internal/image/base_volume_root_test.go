//go:build root && !race

package image

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// current returns an image that the recipe of its name made as it is now: what
// an older one lacks says nothing about the recipe.
func current(t *testing.T, s *Store, name string) Image {
	t.Helper()
	img, err := s.Resolve(t.Context(), name)
	if err != nil {
		t.Fatalf("Resolve(%s) = %v", name, err)
	}
	old, err := s.Outdated()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(old, name) {
		t.Fatalf("the image %s is older than its recipe: make images, or bin/cubby image build %s --image-dir %s", name, name, s.dir)
	}
	return img
}

// overlay mounts a writable copy of an image's tree.
func overlay(t *testing.T, lower string) string {
	t.Helper()
	dir := t.TempDir()
	// The test's directory may lie on an overlay itself, which cannot be an
	// upper layer.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, d := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	options := "lowerdir=" + lower + ",upperdir=" + filepath.Join(dir, "upper") + ",workdir=" + filepath.Join(dir, "work")
	if err := syscall.Mount("overlay", root, "overlay", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(root, syscall.MNT_DETACH) })
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{{"proc", "proc", "proc", 0}, {"/dev", "dev", "", syscall.MS_BIND}} {
		target := filepath.Join(root, m.target)
		if err := syscall.Mount(m.source, target, m.kind, m.flags, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(target, syscall.MNT_DETACH) })
	}
	return root
}

// promise is a line of shell, and what it prints.
type promise struct{ name, cmd, want string }

// runIn keeps the promises of an image as the sandbox's user, with the image's
// own environment.
func runIn(t *testing.T, img Image, root string, promises []promise) {
	for _, tt := range promises {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("/bin/bash", "-c", tt.cmd)
			cmd.Env = append([]string{"HOME=/home/sandbox", "USER=sandbox"}, img.Env...)
			cmd.Dir = "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Chroot: root, Cloneflags: syscall.CLONE_NEWNET, // nothing may depend on a network
				Credential: &syscall.Credential{Uid: 1000, Gid: 1000},
			}
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != tt.want {
				t.Errorf("%s = %q, %v, want %q", tt.cmd, got, err, tt.want)
			}
		})
	}
}

// What the base image promises, as the sandbox's user and with its own
// environment.
func TestBaseRuns(t *testing.T) {
	s, err := Open(testImageDir(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	img := current(t, s, "base")
	root := overlay(t, img.Dir)
	runIn(t, img, root, []promise{
		{"user", "id", "uid=1000(sandbox) gid=1000(sandbox) groups=1000(sandbox)"},
		{"python", "python3 -c 'import numpy, pandas, matplotlib, IPython, ipykernel; print(6*7)'", "42"},
		{"python's short name", "python -c 'print(1+1)'", "2"},
		{"an import reads no source", `python3 -v -c 'import pandas, IPython' 2>&1 | grep -c "code object from .*\.py'$"; find /usr/lib/python3* /usr/share /usr/local/lib -name '*.pyc' |
			python3 -c 'import sys; print(sum(open(p.strip(), "rb").read(8)[4] for p in sys.stdin))'`, "0\n0"},
		{"a kernel's modules are gathered", `python3 -c '
import marshal, os
data = open("/usr/lib/cubby/kernel-modules", "rb").read()
begin = int.from_bytes(data[12:20], "little")
index = marshal.loads(data[20:begin])
print(int.from_bytes(data[4:12], "little") == len(data), len(index) > 400, "ipykernel.kernelapp" in index,
      all(os.stat(source).st_size == size and int(os.stat(source).st_mtime) == time for source, _, time, size, _, _ in index.values()))'`, "True True True True"},
		{"plots", `python3 -c 'import matplotlib.pyplot as p; p.plot([1, 2]); p.savefig("/tmp/a.png")' 2>/dev/null; head -c 4 /tmp/a.png | tail -c 3`, "PNG"},
		{"node", "node -e 'console.log(40+2)'", "42"},
		{"npm", "npm --version | cut -d. -f2 | tr -d 0-9; npm config get prefix", "/home/sandbox/.npm-global"},
		{"git", "git init -q /tmp/r && cd /tmp/r && git status --porcelain && echo ok", "ok"},
		{"git's identity", "git init -q /tmp/s && cd /tmp/s && git commit -q --allow-empty -m x && git log --format='%an %ae'", "Cubby Sandbox sandbox@localhost"},
		{"compilers", `echo 'int main(){return 0;}' > /tmp/a.c && gcc -o /tmp/a /tmp/a.c && /tmp/a && g++ --version >/dev/null && make --version >/dev/null && echo ok`, "ok"},
		{"tools", "for p in curl wget jq rg unzip zip xz zstd ssh less vi ps tree file rsync patch; do command -v $p >/dev/null || echo missing: $p; done; echo ok", "ok"},
		{"no sudo", "command -v sudo || echo none", "none"},
		{"locale", "locale | grep ^LC_CTYPE", `LC_CTYPE="C.UTF-8"`},
		{"home is writable", "cd && touch x && pwd", "/home/sandbox"},
		{"workspace is writable", "touch /workspace/x && echo ok", "ok"},
		{"nobody is known by mistake", "cat /etc/hostname /etc/resolv.conf | wc -c", "0"},
		// A package that needs nothing from the network.
		{"pip install", `mkdir -p /tmp/p/answer && cd /tmp/p && echo 'print(42)' > answer/__main__.py && touch answer/__init__.py &&
			printf '[project]\nname="answer"\nversion="1"\n[build-system]\nrequires=[]\nbuild-backend="b"\nbackend-path=["."]\n' > pyproject.toml &&
			cat > b.py <<'P'
import zipfile
def build_wheel(d, config_settings=None, metadata_directory=None):
    n = "answer-1-py3-none-any.whl"
    with zipfile.ZipFile(d + "/" + n, "w") as z:
        z.write("answer/__main__.py"); z.write("answer/__init__.py")
        z.writestr("answer-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: answer\nVersion: 1\n")
        z.writestr("answer-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("answer-1.dist-info/RECORD", "")
    return n
P
			pip install -q --no-index . 2>&1 && cd / && python3 -m answer`, "42"},
		// Node's own fetch goes to the proxy, where nobody listens.
		{"fetch asks the proxy", `HTTPS_PROXY=http://127.0.0.1:1 node -e 'fetch("https://example.com").catch(e => console.log(e.cause.code, e.cause.port))'`, "ENETUNREACH 1"},
		{"fetch without a proxy is left alone", `node -e 'fetch("http://127.0.0.1:9").catch(e => console.log(String(e.cause)))' | head -1`, "Error: bad port"},
		{"virtual environments", "python3 -m venv /tmp/v && /tmp/v/bin/pip --version | cut -d' ' -f1", "pip"},
	})
	runIn(t, img, root, []promise{
		{"npx in a fresh home", `export NPM_CONFIG_PREFIX=$HOME/fresh; mkdir -p /tmp/x && cd /tmp/x && printf '{"name":"hello","version":"1.0.0","bin":"h.js"}' > package.json &&
			printf '#!/usr/bin/env node\nconsole.log("hello")\n' > h.js && chmod +x h.js && npx --offline --yes . && ls $NPM_CONFIG_PREFIX`, "hello\nbin\nlib"},
		{"npm", "command -v npm npx; npm config get prefix", "/usr/local/bin/npm\n/usr/local/bin/npx\n/home/sandbox/.npm-global"},
		{"fetch says why it failed", `HTTPS_PROXY=http://127.0.0.1:1 node -e 'fetch("https://example.com").catch(e => console.log(e.name + ": " + e.message))' | cut -d' ' -f1-5`, "TypeError: fetch failed: connect ENETUNREACH"},
		{"what scripts import", "python3 -c 'import yaml, openpyxl; print(1)'", "1"},
		{"fonts", "fc-match Arial | cut -d: -f1", "LiberationSans-Regular.ttf"},
		{"more tools", "for p in bc ip lsof nano nc pipx sqlite3 tmux xxd; do command -v $p >/dev/null || echo missing: $p; done; echo ok", "ok"},
	})
	fetchTellsWhy(t, img, root)
	// pip, as root, too.
	cmd := exec.Command("/usr/bin/pip", "install", "-q", "--no-index", "--no-build-isolation", "/tmp/p")
	cmd.Env = append([]string{"HOME=/root"}, img.Env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "externally") {
		t.Errorf("pip install as root = %v\n%s", err, out)
	}
	if _, err := s.Verify(t.Context(), "base", nil); err != nil {
		t.Errorf("Verify after all that = %v", err)
	}
}

// fetchTellsWhy lets Node's fetch meet proxies and servers that refuse, stop
// and are not there.
func fetchTellsWhy(t *testing.T, img Image, root string) {
	const denial = "Host not allowed: example.com"
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "denied.example:443":
			http.Error(w, denial, http.StatusForbidden)
		case r.URL.Path == "/half":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
		default: // it stops before it has said anything
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		}
	}))
	defer proxy.Close()
	proxies := []string{"HTTP_PROXY=" + proxy.URL, "HTTPS_PROXY=" + proxy.URL, "NO_PROXY=localhost,127.0.0.1"}
	for _, tt := range []struct {
		name, url, want string
		env             []string
	}{
		{"a host that is denied", "https://denied.example", "fetch failed: " + denial + " ERR_PROXY_REFUSED", proxies},
		{"a proxy that stops", "https://example.com", "fetch failed: the proxy closed the connection ERR_PROXY_CLOSED", proxies},
		{"an answer that stops", proxy.URL + "/half", "terminated: other side closed UND_ERR_SOCKET", proxies},
		{"a server that is stopped", "http://localhost:1999", "fetch failed: connect ECONNREFUSED 127.0.0.1:1999 ECONNREFUSED", proxies},
		{"an answer that stops, without proxies", proxy.URL + "/half", "terminated: other side closed UND_ERR_SOCKET", nil},
		{"a server that is stopped, without proxies", "http://localhost:1999", "fetch failed: connect ECONNREFUSED 127.0.0.1:1999 ECONNREFUSED", nil},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without an error it connects for ever
		defer cancel()
		cmd := exec.CommandContext(ctx, "/usr/bin/node", "-e", `fetch("`+tt.url+`").then(r => r.text()).catch(e => console.log(e.message, e.cause.code))`)
		cmd.Env = append(append([]string{"HOME=/home/sandbox"}, tt.env...), img.Env...)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
		out, err := cmd.CombinedOutput()
		// Where localhost is ::1 too, that was tried first.
		got := strings.Replace(strings.TrimSpace(string(out)), "connect ECONNREFUSED ::1:1999, ", "", 1)
		if err != nil || got != tt.want {
			t.Errorf("fetch of %s says %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}

// What the image r promises.
func TestRRuns(t *testing.T) {
	s, err := Open(testImageDir(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	img := current(t, s, "r")
	runIn(t, img, overlay(t, img.Dir), []promise{
		{"user", "id -un", "sandbox"},
		{"kernel", "ls /usr/share/jupyter/kernels; Rscript -e 'library(IRkernel)'", "ir"},
		{"packages", `Rscript -e 'for (p in c("jsonlite", "base64enc", "readr", "dplyr", "tidyr", "ggplot2", "data.table", "readxl", "haven", "httr2", "DBI", "RSQLite", "rmarkdown", "knitr", "htmlwidgets", "randomForest", "glmnet")) suppressWarnings(suppressPackageStartupMessages(library(p, character.only = TRUE))); cat("ok")'`, "ok"},
		{"plots", `Rscript -e 'png("/tmp/a.png"); plot(1); invisible(dev.off())'; head -c 4 /tmp/a.png | tail -c 3`, "PNG"},
		{"a library of one's own", `Rscript -e 'cat(startsWith(.libPaths()[1], "/home/sandbox/"), file.access(.libPaths()[1], 2))'`, "TRUE 0"},
		{"mirror", `Rscript -e 'cat(getOption("repos"))'; CUBBY_CRAN_MIRROR=http://127.0.0.1:9/ Rscript -e 'cat("", getOption("repos"))'`, "https://cloud.r-project.org http://127.0.0.1:9/"},
		// A package that has to be compiled, and needs nothing from the network.
		{"packages in C", `mkdir -p /tmp/p/R /tmp/p/src && cd /tmp/p && printf 'Package: answer\nVersion: 1.0\nTitle: A\nDescription: A.\nAuthor: A\nMaintainer: A <a@b.c>\nLicense: MIT\n' > DESCRIPTION &&
			printf 'useDynLib(answer)\nexport(answer)\n' > NAMESPACE && echo 'answer <- function() .C("answer", n = 0L)$n' > R/a.R && echo 'void answer(int *n) { *n = 42; }' > src/a.c &&
			cd /tmp && R CMD build p >/dev/null 2>&1 && Rscript -e 'install.packages("answer_1.0.tar.gz", repos = NULL, quiet = TRUE)' 2>&1 && Rscript -e 'cat(answer::answer())'`, "42"},
		{"tools", "for p in curl wget jq rg unzip git gcc make; do command -v $p >/dev/null || echo missing: $p; done; echo ok", "ok"},
	})
}
