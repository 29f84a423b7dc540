//go:build root && long

package e2e_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha1"
	"crypto/sha512"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/git/gittest"
)

// TestEgressOfEverydayTools runs the tools that agents use through the egress
// path, untouched but for the authority of the test's own servers, to servers
// that are allowed and to one that is not.
func TestEgressOfEverydayTools(t *testing.T) {
	t.Parallel()
	trust := map[string]string{}
	for _, name := range []string{"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS"} {
		trust[name] = caFile
	}
	served, authority := ownAuthority(t)
	plain, secure := everydayServer(t, nil), everydayServer(t, served)
	repos := map[string]*gittest.Server{
		"http":  gittest.New(t, gittest.Options{Address: elsewhere + ":0"}),
		"https": gittest.New(t, gittest.Options{Address: elsewhere + ":0", TLS: served}),
	}
	eachIsolation(t, sdk.CreateOptions{Env: trust}, func(t *testing.T, _ realHost, c *sdk.Client) {
		if _, err := c.Files("a").Write(t.Context(), caFile, strings.NewReader(authority), sdk.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		for scheme, url := range map[string]string{"http": plain, "https": secure} {
			repo := repos[scheme].Repo(t, t.Name()+".git")
			for _, tool := range []struct{ name, line, want string }{
				{"curl", "curl -sS --fail URL/hello", "hello from elsewhere\n"},
				{"wget", "wget -qO- --ca-certificate=" + caFile + " URL/hello", "hello from elsewhere\n"},
				{"urllib", `python3 -c "import urllib.request as r; print(r.urlopen('URL/hello').read().decode(), end='')"`, "hello from elsewhere\n"},
				{"requests", `python3 -c "import requests; print(requests.get('URL/hello').text, end='')"`, "hello from elsewhere\n"},
				{"node fetch", `node -e "fetch('URL/hello').then(r => r.text()).then(t => process.stdout.write(t))"`, "hello from elsewhere\n"},
				{"pip", "pip install --quiet --no-cache-dir --force-reinstall --index-url URL/simple cubby-demo >&2 && python3 -c 'import cubby_demo; print(cubby_demo.text)'", "from the index\n"},
				{"npm", "mkdir -p " + scheme + " && cd " + scheme + " && npm install --silent --no-audit --no-fund --registry URL/npm/ cubby-demo >&2 && node -p 'require(\"cubby-demo\")'", "from the registry\n"},
				{"git", "git clone -q REPO repo-" + scheme + " && cd repo-" + scheme + " && echo more >> README && git -c user.name=a -c user.email=a@b commit -qam more && git push -q && git ls-remote -q REPO main | wc -l", "1\n"},
			} {
				line := strings.NewReplacer("URL", url, "REPO", repo).Replace(tool.line)
				e, err := c.Exec(t.Context(), "a", sdk.Shell(line))
				if err != nil {
					t.Fatalf("%s over %s: %v", tool.name, scheme, err)
				}
				if e.Stdout != tool.want || e.Err() != nil {
					t.Errorf("%s over %s: %v\nstdout: %s\nstderr: %s", tool.name, scheme, e.Err(), e.Stdout, e.Stderr)
				}
			}

			// The same tools at a host that nobody allowed. Each shows the
			// refusal, with what to do, as far as it shows anything.
			const denied = "127.0.0.3"
			for _, tool := range []struct{ name, line, overHTTP, overHTTPS string }{
				{"curl", "curl -sS URL/hello", "CUBBY_EGRESS_ALLOW", "403"},
				{"wget", "wget -O- URL/hello", "CUBBY_EGRESS_ALLOW", "CUBBY_EGRESS_ALLOW"},
				{"urllib", `python3 -c "import urllib.request as r; r.urlopen('URL/hello')"`, "CUBBY_EGRESS_ALLOW", "CUBBY_EGRESS_ALLOW"},
				{"requests", `python3 -c "import requests; print(requests.get('URL/hello').text)"`, "CUBBY_EGRESS_ALLOW", "CUBBY_EGRESS_ALLOW"},
				{"node fetch", `node -e "fetch('URL/hello').then(r => r.text()).then(t => console.log(t), e => console.log(e))"`, "403", "403"},
				{"pip", "pip install -vv --retries 1 --index-url URL/simple cubby-other", "CUBBY_EGRESS_ALLOW", "CUBBY_EGRESS_ALLOW"},
				{"npm", "npm install --fetch-retries 0 --no-audit --registry URL/npm/ cubby-other", "CUBBY_EGRESS_ALLOW", "403"},
				{"git", "git clone URL/r.git denied", "CUBBY_EGRESS_ALLOW", "403"},
			} {
				want := tool.overHTTP
				if scheme == "https" {
					want = tool.overHTTPS
				}
				e, err := c.Exec(t.Context(), "a", sdk.Shell(strings.ReplaceAll(tool.line, "URL", scheme+"://"+denied+":8080")))
				if err != nil {
					t.Fatalf("%s over %s: %v", tool.name, scheme, err)
				}
				if text := e.Stdout + e.Stderr; !strings.Contains(text, want) {
					t.Errorf("%s over %s to a host that is not allowed does not show %s:\n%s", tool.name, scheme, want, text)
				}
			}
		}
		_, events := call(t, "GET", c.URL()+"/v1/sandboxes/a/events?limit=1000&kinds=egress.denied", "")
		if !strings.Contains(events, `"host":"127.0.0.3"`) {
			t.Errorf("the refusals are not in the history: %s", events)
		}
	})
}

// everydayServer serves a text, an index for pip and a registry for npm, and
// returns its URL.
func everydayServer(t *testing.T, secure *tls.Config) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from elsewhere") })

	wheel := demoWheel(t)
	mux.HandleFunc("/simple/cubby-demo/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!DOCTYPE html><a href="/files/cubby_demo-1.0-py3-none-any.whl">cubby_demo-1.0-py3-none-any.whl</a>`)
	})
	mux.HandleFunc("/files/cubby_demo-1.0-py3-none-any.whl", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel) })

	tarball := demoTarball(t)
	mux.HandleFunc("/npm/-/cubby-demo-1.0.0.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(tarball) })
	mux.HandleFunc("/npm/cubby-demo", func(w http.ResponseWriter, r *http.Request) {
		short, long := sha1.Sum(tarball), sha512.Sum512(tarball)
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"name": "cubby-demo", "dist-tags": map[string]string{"latest": "1.0.0"},
			"versions": map[string]any{"1.0.0": map[string]any{
				"name": "cubby-demo", "version": "1.0.0", "main": "index.js",
				"dist": map[string]string{
					"tarball":   scheme + "://" + r.Host + "/npm/-/cubby-demo-1.0.0.tgz",
					"shasum":    hex.EncodeToString(short[:]),
					"integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:]),
				},
			}},
		})
	})

	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", elsewhere+":0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(mux)
	srv.Listener.Close()
	srv.Listener = l
	if secure != nil {
		srv.TLS = secure.Clone()
		srv.StartTLS()
	} else {
		srv.Start()
	}
	t.Cleanup(srv.Close)
	return srv.URL
}

// demoWheel is a Python package of one module.
func demoWheel(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range []struct{ name, text string }{
		{"cubby_demo.py", "text = 'from the index'\n"},
		{"cubby_demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: cubby-demo\nVersion: 1.0\n"},
		{"cubby_demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"cubby_demo-1.0.dist-info/RECORD", "cubby_demo.py,,\ncubby_demo-1.0.dist-info/METADATA,,\ncubby_demo-1.0.dist-info/WHEEL,,\ncubby_demo-1.0.dist-info/RECORD,,\n"},
	} {
		w, err := z.Create(f.name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// demoTarball is a Node package of one module.
func demoTarball(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	w := tar.NewWriter(gz)
	for _, f := range []struct{ name, text string }{
		{"package/package.json", `{"name":"cubby-demo","version":"1.0.0","main":"index.js"}`},
		{"package/index.js", "module.exports = 'from the registry';\n"},
	} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestEgressOfR has R ask as R does, with the authorities that the sandbox has.
func TestEgressOfR(t *testing.T) {
	t.Parallel()
	o, authority := newOrigin(t)
	eachIsolation(t, sdk.CreateOptions{Image: "r", Env: map[string]string{"CURL_CA_BUNDLE": caFile}}, func(t *testing.T, _ realHost, c *sdk.Client) {
		if _, err := c.Files("a").Write(t.Context(), caFile, strings.NewReader(authority), sdk.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, url := range []string{"http://" + o.plain, "https://" + o.secure} {
			e := sh(t, c, `Rscript -e 'cat(readLines(url("`+url+`/hello"))); download.file("`+url+`/hello", "got", quiet = TRUE); cat("", readLines("got"))'`)
			if n := strings.Count(e.Stdout, "hello over"); n != 2 {
				t.Errorf("R over %s: %q %q", url, e.Stdout, e.Stderr)
			}
		}
		// An authority that it does not have it does not trust.
		if e := sh(t, c, `CURL_CA_BUNDLE= Rscript -e 'cat(readLines(url("https://`+o.secure+`/hello")))'`); strings.Contains(e.Stdout, "hello over") {
			t.Errorf("R trusts anybody: %q", e.Stdout)
		}
	})
}
