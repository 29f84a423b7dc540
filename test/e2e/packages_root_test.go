//go:build root

package e2e_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/packages/packagestest"
	"github.com/cubbyhq/cubby/test/harness"
)

// packagesOf tells how a runtime's packages are used in these tests.
var packagesOf = map[string]struct {
	old, newest string // versions of cubbydemo
	program     func(name string) sdk.ExecOptions
	code        func(name string) string // for the runtime's kernel
}{
	"python": {"1.1.0", "2.0.0",
		func(name string) sdk.ExecOptions {
			return sdk.Command("python3", "-c", "import "+name+"; print("+name+".version())")
		},
		func(name string) string { return "import " + name + "; print(" + name + ".version())" }},
	"node": {"1.1.0", "2.0.0",
		func(name string) sdk.ExecOptions { return sdk.Command("node", "-p", "require('"+name+"').version()") },
		func(name string) string { return "console.log(require('" + name + "').version())" }},
	"r": {"1.1", "2.0",
		func(name string) sdk.ExecOptions {
			return sdk.Command("Rscript", "-e", "cat("+name+"::version(), '\\n', sep='')")
		},
		func(name string) string { return "cat(" + name + "::version(), '\\n', sep='')" }},
}

// once keeps installers from trying again what fails.
var once = map[string]string{"PIP_RETRIES": "0", "NPM_CONFIG_FETCH_RETRIES": "0"}

// indexHost starts a daemon whose packages come from indexes of the test.
func indexHost(t *testing.T, o packagestest.Options) (realHost, *sdk.Client, *packagestest.Indexes) {
	t.Helper()
	o.Address = elsewhere + ":0"
	x := packagestest.New(t, o)
	h := newReal(t, harness.Options{})
	url, err := h.start([]string{"--pip-index-url", x.PyPI, "--npm-registry", x.NPM, "--cran-mirror", x.CRAN})
	if err != nil {
		t.Fatal(err)
	}
	return h, clientOf(url), x
}

func wantPackagesError(t *testing.T, err error, code string) *sdk.PackagesError {
	t.Helper()
	var failed *sdk.PackagesError
	if !errors.As(err, &failed) || failed.Code != code {
		t.Errorf("error = %v (%+v), want %s", err, failed, code)
		return &sdk.PackagesError{}
	}
	return failed
}

// TestPackages installs packages of every runtime at create and later, from
// indexes on this machine. The installers are the same in both isolations, and
// take as long as all the rest: one of them shows that of the second.
func TestPackages(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"gvisor", "container"} {
		for runtime, p := range packagesOf {
			if !everything && (isolation == "gvisor") != (runtime == "python") {
				continue // in the long tests
			}
			t.Run(isolation+"/"+runtime, func(t *testing.T) {
				t.Parallel()
				h, c, x := indexHost(t, packagestest.Options{})
				ctx := t.Context()

				var log strings.Builder
				box, err := c.Create(ctx, sdk.CreateOptions{
					ID: "a", Isolation: isolation, Runtime: runtime, Env: once, Dependencies: map[string]string{"cubbydemo": p.old},
					Progress: func(o sdk.Output) { log.Write(o.Data) },
				})
				if err != nil {
					t.Fatalf("%v\n%s", err, log.String())
				}
				if box.Status != sdk.Running || box.Runtime != runtime || !strings.Contains(log.String(), "cubbydemo") {
					t.Errorf("Create = %+v, and told %q", box, log.String())
				}
				runs := func(name, want string) {
					t.Helper()
					e, err := c.Exec(ctx, "a", p.program(name))
					if err != nil || e.Err() != nil || e.Stdout != want+"\n" {
						t.Errorf("%s: %v %v: %q %q, want %s", name, err, e.Err(), e.Stdout, e.Stderr, want)
					}
				}
				runs("cubbydemo", p.old)

				// A kernel that runs has what is installed later.
				cell := func(code, want string) {
					t.Helper()
					e, err := c.RunCode(ctx, "a", sdk.CodeRequest{Language: runtime, Code: code})
					if err != nil || e.Err() != nil || e.Stdout != want+"\n" {
						t.Errorf("%s: %v %v: %q, want %s", code, err, e.Err(), e.Stdout, want)
					}
				}
				cell(p.code("cubbydemo"), p.old)
				installed, err := c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{"cubbyneeds": "", "cubbydemo": ""}})
				if err != nil || len(installed) != 2 || installed[0] != (sdk.Package{Name: "cubbydemo", Version: p.old}) || installed[1].Name != "cubbyneeds" {
					t.Errorf("InstallPackages = %+v, %v: %+v", installed, err, err)
				}
				cell(p.code("cubbyneeds"), p.old)
				runs("cubbyneeds", p.old)

				installed, err = c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{"cubbydemo": p.newest}})
				if err != nil || len(installed) != 1 || installed[0].Version != p.newest {
					t.Errorf("InstallPackages of another version = %+v, %v", installed, err)
				}
				runs("cubbydemo", p.newest)

				for name, version := range map[string]string{"nosuchpackage": "", "cubbydemo": "9.9"} {
					_, err = c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{name: version}})
					if f := wantPackagesError(t, err, "not_found"); !strings.Contains(f.Message, name) || !strings.Contains(f.Log, name) {
						t.Errorf("the failure is %+v", f)
					}
				}
				runs("cubbydemo", p.newest)
				if runtime != "r" {
					_, err = c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{"cubbybroken": ""}})
					wantPackagesError(t, err, "hash_mismatch")
				} else {
					_, err = c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{"cubbyfails": ""}})
					wantPackagesError(t, err, "failed")
				}
				x.Down(true)
				_, err = c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{"cubbydemo": p.old}})
				wantPackagesError(t, err, "unreachable")
				x.Down(false)

				for name, version := range map[string]string{"foo; rm -rf /": "", "cubbydemo": "1; rm -rf /", "--help": ""} {
					if _, err = c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{name: version}}); !errors.Is(err, sdk.InvalidRequest) {
						t.Errorf("%q %q: %v, want invalid_request", name, version, err)
					}
				}
				if err := c.Destroy(ctx, "a"); err != nil {
					t.Fatal(err)
				}

				// A create whose installation fails leaves its history.
				_, err = c.Create(ctx, sdk.CreateOptions{
					ID: "b", Isolation: isolation, Runtime: runtime, Dependencies: map[string]string{"nosuchpackage": ""},
				})
				var failed *sdk.Error
				if !errors.As(err, &failed) || failed.Status != http.StatusConflict || !strings.Contains(failed.Message, "nosuchpackage") || !strings.Contains(failed.Hint, "the end of the log") {
					t.Errorf("Create = %v: %+v", err, failed)
				}
				if box, err := c.Get(ctx, "b"); err != nil || box.Status != sdk.Failed || !strings.Contains(box.Reason, "nosuchpackage") {
					t.Errorf("it is %+v, %v", box, err)
				}
				if e, err := c.Process("b", 1).Wait(ctx); err != nil || !strings.Contains(e.Stdout+e.Stderr, "nosuchpackage") {
					t.Errorf("the installation is %+v, %v", e, err)
				}
				if err := h.stop(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestPackagesBadEnds: an installation that fills the disk, one that is
// canceled, and one under which the daemon is killed.
func TestPackagesBadEnds(t *testing.T) {
	t.Parallel()
	for _, isolation := range anyIsolation {
		t.Run(isolation, func(t *testing.T) {
			asked := make(chan struct{}, 1000)
			h, c, _ := indexHost(t, packagestest.Options{OnRequest: func(ctx context.Context, path string) {
				if strings.Contains(path, "cubbyneeds") { // hangs
					asked <- struct{}{}
					<-ctx.Done()
				}
			}})
			ctx := t.Context()
			hangs := func() {
				t.Helper()
				select {
				case <-asked:
				case <-time.After(2 * time.Minute):
					t.Fatal("the installer does not ask for the package")
				}
			}
			root := sdk.CreateOptions{ID: "a", Isolation: isolation, User: "root", Limits: &sdk.Limits{DiskBytes: 64 << 20}}
			if _, err := c.Create(ctx, root); err != nil {
				t.Fatal(err)
			}
			if _, err := c.InstallPackages(ctx, "a", sdk.PackagesOptions{Dependencies: map[string]string{"cubbydemo": ""}}); err != nil {
				t.Errorf("InstallPackages as root: %v", err)
			}
			asSandbox := packagesOf["python"].program("cubbydemo")
			asSandbox.User = "sandbox"
			if e, err := c.Exec(ctx, "a", asSandbox); err != nil || e.Stdout != "2.0.0\n" {
				t.Errorf("what root installed: %q %q, %v", e.Stdout, e.Stderr, err)
			}
			for _, runtime := range []string{"python", "node"} {
				_, err := c.InstallPackages(ctx, "a", sdk.PackagesOptions{Runtime: runtime, Dependencies: map[string]string{"cubbylarge": ""}})
				wantPackagesError(t, err, "disk_full")
				sh(t, c, "rm -rf /root/.npm /tmp/* /workspace/*")
			}
			_, err := c.InstallPackages(ctx, "a", sdk.PackagesOptions{Runtime: "r", Dependencies: map[string]string{"cubbydemo": ""}})
			wantPackagesError(t, err, "no_installer")

			// Canceled.
			status, text := call(t, "POST", c.URL()+"/v1/sandboxes/a/packages", `{"runtime":"python","dependencies":{"cubbyneeds":""},"wait":false}`)
			var started struct{ Seq int64 }
			decode(t, text, &started)
			hangs()
			if err := c.Process("a", started.Seq).Cancel(ctx); err != nil {
				t.Errorf("%d %s: Cancel = %v", status, text, err)
			}
			canceled, err := c.Process("a", started.Seq).Wait(ctx)
			if err != nil || !strings.Contains(string(canceled.Result), `"canceled"`) {
				t.Errorf("it ended as %+v, %v", canceled, err)
			}

			// Killed under a create. A repeat with the same key begins anew.
			for len(asked) > 0 {
				<-asked
			}
			gone := make(chan error, 1)
			go func() {
				_, err := c.Create(ctx, sdk.CreateOptions{ID: "b", Isolation: isolation, Dependencies: map[string]string{"cubbyneeds": ""}, IdempotencyKey: "key"})
				gone <- err
			}()
			hangs()
			if err := h.kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-gone; err == nil {
				t.Error("the create of a killed daemon succeeded")
			}
			url, err := h.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			c = clientOf(url)
			if e, err := c.Process("b", 1).Wait(ctx); err != nil || e.Reason != "sandbox_destroyed" {
				t.Errorf("the installation under which the daemon was killed is %+v, %v", e, err)
			}
			if box, err := c.Get(ctx, "b"); err != nil || box.Status != sdk.Failed {
				t.Errorf("its sandbox is %+v, %v", box, err)
			}
			if _, err := c.Create(ctx, sdk.CreateOptions{ID: "b", Isolation: isolation, IdempotencyKey: "key"}); err != nil {
				t.Errorf("the id and the key afterwards: %v", err)
			}
			// Without network there is nothing to try.
			_, err = c.Create(ctx, sdk.CreateOptions{Isolation: isolation, Network: &sdk.Network{Mode: "none"}, Dependencies: map[string]string{"six": ""}})
			if !errors.Is(err, sdk.InvalidRequest) {
				t.Errorf("without network: %v", err)
			}
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPackagesOfTheSandboxesOwnIndex: an index that the operator did not set
// needs to be allowed, and the refusal says how. Also where nothing else in the
// sandbox is told of the proxy, an installation is.
func TestPackagesOfTheSandboxesOwnIndex(t *testing.T) {
	t.Parallel()
	unnamed := false
	x := packagestest.New(t, packagestest.Options{Address: elsewhere + ":0"})
	for _, allow := range []string{"", x.HostPort} {
		h := newReal(t, harness.Options{})
		url, err := h.start([]string{"--egress-allow", allow})
		if err != nil {
			t.Fatal(err)
		}
		c := clientOf(url)
		for runtime, env := range map[string]map[string]string{
			"python": {"PIP_INDEX_URL": x.PyPI, "PIP_RETRIES": "0"},
			"node":   {"NPM_CONFIG_REGISTRY": x.NPM, "NPM_CONFIG_FETCH_RETRIES": "0"},
			"r":      {"CUBBY_CRAN_MIRROR": x.CRAN},
		} {
			box, err := c.Create(t.Context(), sdk.CreateOptions{
				ID: runtime, Isolation: "container", Runtime: runtime, Env: env, Network: &sdk.Network{ProxyEnv: &unnamed},
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.InstallPackages(t.Context(), box.ID, sdk.PackagesOptions{Dependencies: map[string]string{"cubbydemo": ""}})
			if allow != "" && err != nil {
				t.Errorf("%s: InstallPackages = %v", runtime, err)
			}
			if allow == "" {
				if f := wantPackagesError(t, err, "egress_denied"); !strings.Contains(f.Hint, "CUBBY_EGRESS_ALLOW") {
					t.Errorf("%s: the failure is %+v", runtime, f)
				}
			}
		}
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestPackagesDeniedAtCreate asks for packages of an HTTPS index that the
// sandbox may not reach. The failure is that of the packages, names the denial,
// and is not worth another try.
func TestPackagesDeniedAtCreate(t *testing.T) {
	t.Parallel()
	h, c, _ := indexHost(t, packagestest.Options{})
	for runtime, index := range map[string]string{"python": "PIP_INDEX_URL", "node": "NPM_CONFIG_REGISTRY", "r": "CUBBY_CRAN_MIRROR"} {
		env := map[string]string{index: "https://index.invalid/simple"}
		maps.Copy(env, once)
		_, err := c.Create(t.Context(), sdk.CreateOptions{Isolation: "container", Runtime: runtime, Env: env, Dependencies: map[string]string{"cubbydemo": ""}})
		var failed *sdk.Error
		if !errors.As(err, &failed) {
			t.Errorf("%s: Create = %v, want an error of the API", runtime, err)
			continue
		}
		if failed.Retryable || failed.Code == "sandbox_unavailable" || !strings.Contains(failed.Message+failed.Hint, "index.invalid is not on this sandbox's allowlist") {
			t.Errorf("%s: Create = %+v, want the denial", runtime, failed)
		}
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
