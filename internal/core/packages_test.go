package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/packages"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// installs is what an installer of six prints.
const installs = `echo Collecting six; echo '{"installed":[{"name":"six","version":"1.16.0"}]}'`

// installer makes a script the python3 of a sandbox, and returns the spec of
// one that has it.
func installer(t *testing.T, script string) sandbox.Spec {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "python3"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return sandbox.Spec{Env: map[string]string{"PATH": dir + ":" + os.Getenv("PATH")}}
}

// needing is a create of a sandbox that needs six.
func needing(spec sandbox.Spec) lifecycle.CreateRequest {
	spec.Dependencies = map[string]string{"six": "1.16.0"}
	return lifecycle.CreateRequest{ID: "a", Spec: spec}
}

func resultOf(t *testing.T, x sandbox.Exec) packages.Result {
	t.Helper()
	var r packages.Result
	if err := json.Unmarshal(x.Result, &r); err != nil {
		t.Fatalf("the result of %+v: %v", x, err)
	}
	return r
}

func TestCreateInstallsDependencies(t *testing.T) {
	w := newWorld(t)
	var heard strings.Builder
	req := needing(installer(t, "echo run >> "+filepath.Join(t.TempDir(), "runs")+"; "+installs))
	req.IdempotencyKey = "key"
	req.Progress = func(o sandbox.Output) {
		heard.Write(o.Data)
		if b, err := w.Sandboxes().Get(w.ctx, "a"); err != nil || b.State != sandbox.Creating {
			t.Errorf("while its packages are installed it is %s, %v", b.State, err)
		}
		if _, err := w.Execs().Start(w.ctx, "a", sandbox.ExecSpec{Shell: "true"}); !errors.Is(err, errs.WrongState) {
			t.Errorf("Exec meanwhile = %v, want WrongState", err)
		}
	}
	b, err := w.Sandboxes().Create(w.ctx, req)
	if err != nil || b.State != sandbox.Running || b.Spec.Runtime != sandbox.RuntimePython {
		t.Fatalf("Create = %+v, %v", b, err)
	}
	if !strings.HasPrefix(heard.String(), "Collecting six\n") {
		t.Errorf("progress was %q", heard.String())
	}
	x, err := w.Execs().Get(w.ctx, "a", 1)
	if err != nil || x.Spec.Kind != packages.Kind || string(x.Spec.Detail) != `{"runtime":"python","dependencies":{"six":"1.16.0"}}` || len(resultOf(t, x).Installed) != 1 {
		t.Errorf("the first exec is %+v, %s, %v", x, x.Result, err)
	}
	if r := w.sh("a", "echo on"); string(r.Stdout) != "on\n" || r.Exec.Seq != 2 {
		t.Errorf("the next exec is %d: %q", r.Exec.Seq, r.Stdout)
	}
	req.Progress = func(sandbox.Output) { t.Error("a repeat installs again") }
	if again, err := w.Sandboxes().Create(w.ctx, req); err != nil || again.UID != b.UID {
		t.Errorf("a repeat = %s, %v, want %s", again.UID, err, b.UID)
	}
}

// TestCreateIsUndoneWithItsInstallation: nothing is left but the history, and
// the id and the key are free again.
func TestCreateIsUndoneWithItsInstallation(t *testing.T) {
	const failing = "echo Collecting six; echo ERROR: No matching distribution found for six==1.16.0 >&2; exit 1"
	w := newWorld(t)
	req := needing(installer(t, failing))
	req.IdempotencyKey = "key"
	_, err := w.Sandboxes().Create(w.ctx, req)
	info := errs.Public(err)
	if !errors.Is(err, errs.Unsupported) || !strings.Contains(info.Message, "No matching distribution") || !strings.Contains(info.Hint, "Collecting six") {
		t.Fatalf("Create = %+v", info)
	}
	b, err := w.Sandboxes().Get(w.ctx, "a")
	if err != nil || b.State != sandbox.Failed || b.Reason != "create: "+info.Message {
		t.Errorf("the sandbox is %s: %q, %v", b.State, b.Reason, err)
	}
	w.nothingLeft()
	r, err := w.Execs().Result(w.ctx, "a", 1, live.OutputCaps{Stdout: -1, Stderr: -1})
	if err != nil || string(r.Stdout) != "Collecting six\n" || resultOf(t, r.Exec).Error.Code != packages.NotFound {
		t.Errorf("the installation is %+v, %v", r, err)
	}
	req.Spec.Env = installer(t, installs).Env
	req.Spec.Env["OTHER"] = "request"
	if b, err := w.Sandboxes().Create(w.ctx, req); err != nil || b.State != sandbox.Running {
		t.Errorf("a create afterwards = %s, %v", b.State, err)
	}
}

// TestCreateEndsWithWhatEndsItsInstallation: each of these comes while the
// installer hangs.
func TestCreateEndsWithWhatEndsItsInstallation(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, w *world, leave context.CancelFunc)
		want errs.Kind
		exec sandbox.EndReason
	}{
		{"the client leaves", func(_ *testing.T, _ *world, leave context.CancelFunc) { leave() }, errs.Canceled, sandbox.EndDestroyed},
		{"it is canceled", func(t *testing.T, w *world, _ context.CancelFunc) {
			if _, err := w.Execs().Cancel(w.ctx, "a", 1); err != nil {
				t.Errorf("Cancel = %v", err)
			}
		}, errs.Conflict, sandbox.EndKilled},
		{"the sandbox is destroyed", func(t *testing.T, w *world, _ context.CancelFunc) {
			if err := w.Sandboxes().Destroy(w.ctx, "a", false); err != nil {
				t.Errorf("Destroy = %v", err)
			}
		}, errs.Conflict, sandbox.EndKilled},
		{"the sandbox is purged", func(t *testing.T, w *world, _ context.CancelFunc) {
			if _, err := w.Sandboxes().Purge(w.ctx, "a"); err != nil {
				t.Errorf("Purge = %v", err)
			}
		}, errs.Conflict, sandbox.EndKilled},
		{"the sandbox dies", func(t *testing.T, w *world, _ context.CancelFunc) {
			b, err := w.Sandboxes().Get(w.ctx, "a")
			if err != nil {
				t.Error(err)
			}
			w.fake.Kill(b.UID, driver.Death{Cause: driver.DeathOOM})
		}, errs.Unsupported, ""},
		{"time is over", func(*testing.T, *world, context.CancelFunc) {}, errs.Timeout, sandbox.EndTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limit := time.Hour
			if tt.want == errs.Timeout {
				limit = 300 * time.Millisecond
			}
			w := newWorld(t, func(c *core.Config) { c.Packages.Timeout = limit })
			ctx, leave := context.WithCancel(w.ctx)
			defer leave()
			req := needing(installer(t, "echo begun; exec sleep 600"))
			ended := make(chan struct{})
			req.Progress = func(sandbox.Output) {
				go func() {
					defer close(ended)
					tt.end(t, w, leave)
				}()
			}
			_, err := w.Sandboxes().Create(ctx, req)
			if !errors.Is(err, tt.want) && errs.KindOf(err) != tt.want {
				t.Errorf("Create = %v, want %s", err, tt.want)
			}
			<-ended
			w.nothingLeft()
			x, err := w.Execs().List(w.ctx, "a", live.ExecQuery{})
			if err != nil || len(x) != 1 || !x[0].Status.Finished() || tt.exec != "" && x[0].Exit.Reason != tt.exec {
				t.Errorf("the installation is %+v, %v, want the end %s", x, err, tt.exec)
			}
			if b := w.create("a"); b.State != sandbox.Running {
				t.Errorf("the next with this id is %s", b.State)
			}
		})
	}
}

// TestDestroyBeforeAnInstallationBegins: who comes before it does not wait for it either.
func TestDestroyBeforeAnInstallationBegins(t *testing.T) {
	for name, destroy := range map[string]func(w *world) error{
		"destroy": func(w *world) error { return w.Sandboxes().Destroy(w.ctx, "a", false) },
		"purge": func(w *world) error {
			_, err := w.Sandboxes().Purge(w.ctx, "a")
			return err
		},
		"thread": func(w *world) error {
			_, err := w.Threads().Destroy(w.ctx, "t")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			starting, looked := make(chan struct{}), make(chan struct{})
			w.faults.SetBefore(func(_ context.Context, method string, _ sandbox.UID) {
				if method == "Start" {
					close(starting)
					<-looked
				}
			})
			req := needing(installer(t, "exec sleep 600"))
			req.Spec.Thread = "t"
			created, destroyed := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := w.Sandboxes().Create(w.ctx, req)
				created <- err
			}()
			<-starting
			go func() { destroyed <- destroy(w) }()
			time.Sleep(100 * time.Millisecond) // for its first look
			close(looked)
			if err := <-destroyed; err != nil {
				t.Errorf("Destroy = %v", err)
			}
			if err := <-created; !errors.Is(err, errs.Conflict) {
				t.Errorf("Create = %v, want a conflict", err)
			}
			w.nothingLeft()
		})
	}
}

// TestStopDuringAnInstallation: a daemon that stops does not wait for it.
func TestStopDuringAnInstallation(t *testing.T) {
	w := newWorld(t)
	begun, ended := make(chan struct{}), make(chan error, 1)
	req := needing(installer(t, "echo begun; exec sleep 600"))
	req.Progress = func(sandbox.Output) { close(begun) }
	go func() {
		_, err := w.Sandboxes().Create(w.ctx, req)
		ended <- err
	}()
	<-begun
	w.restart()
	if err := <-ended; !errors.Is(err, errs.Unavailable) {
		t.Errorf("Create = %v, want Unavailable", err)
	}
	b, err := w.Sandboxes().Get(w.ctx, "a")
	if err != nil || b.State != sandbox.Failed {
		t.Errorf("the sandbox is %s, %v", b.State, err)
	}
	if x := w.wait("a", 1); x.Exit.Reason != sandbox.EndDestroyed {
		t.Errorf("the installation ended %+v", x.Exit)
	}
	w.nothingLeft()
}

func TestInstallPackages(t *testing.T) {
	w := newWorld(t, func(c *core.Config) { c.Packages.Indexes.PyPI = "http://index.example/simple" })
	spec := installer(t, `echo "$PIP_INDEX_URL $PIP_TRUSTED_HOST" $PWD; `+installs)
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "a", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	req := program.PackagesRequest{Dependencies: map[string]string{"six": ""}}
	res, err := w.Packages().Install(w.ctx, "a", req, -1)
	if err != nil {
		t.Fatal(err)
	}
	if got := resultOf(t, res.Exec).Installed; len(got) != 1 || got[0].Version != "1.16.0" || !strings.HasPrefix(string(res.Stdout), "http://index.example/simple index.example /\n") {
		t.Errorf("InstallPackages = %+v, %q", got, res.Stdout)
	}
	if res, err = w.Packages().Install(w.ctx, "a", req, 0); err != nil || res.Exec.Seq != 2 {
		t.Errorf("without a wait = %+v, %v", res.Exec, err)
	}
	w.wait("a", 2)
	// A sandbox's own index wins.
	spec.Env["PIP_INDEX_URL"] = "http://own.example"
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "own", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	if res, err = w.Packages().Install(w.ctx, "own", req, -1); err != nil || !strings.HasPrefix(string(res.Stdout), "http://own.example ") {
		t.Errorf("with an index of its own = %q, %v", res.Stdout, err)
	}
	// An image without an installer.
	spec.Runtime, spec.Env = sandbox.RuntimeNode, map[string]string{"PATH": t.TempDir()}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "bare", Spec: spec}); err != nil {
		t.Fatal(err)
	}
	if res, err = w.Packages().Install(w.ctx, "bare", req, -1); err != nil || resultOf(t, res.Exec).Error.Code != packages.NoInstaller {
		t.Errorf("without an installer = %s, %v", res.Exec.Result, err)
	}
}

func TestPackagesAreRefusedBeforeAnythingHappens(t *testing.T) {
	w := newWorld(t)
	none := sandbox.Spec{Network: sandbox.Policy{Mode: sandbox.NetworkNone}}
	for name, req := range map[string]lifecycle.CreateRequest{
		"a shell's text": {ID: "x", Spec: sandbox.Spec{Dependencies: map[string]string{"foo; rm -rf /": ""}}},
		"an option":      {ID: "x", Spec: sandbox.Spec{Runtime: "node", Dependencies: map[string]string{"--global": ""}}},
		"no runtime":     {ID: "x", Spec: sandbox.Spec{Runtime: "cobol", Dependencies: map[string]string{"a": ""}}},
		"no network":     needing(none),
	} {
		if _, err := w.Sandboxes().Create(w.ctx, req); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: Create = %v, want Invalid", name, err)
		}
	}
	if _, err := w.Sandboxes().Get(w.ctx, "x"); !errors.Is(err, errs.NotFound) {
		t.Errorf("there is a sandbox of a refused create: %v", err)
	}
	if _, err := w.Sandboxes().Create(w.ctx, lifecycle.CreateRequest{ID: "none", Spec: none}); err != nil {
		t.Fatal(err)
	}
	for name, req := range map[string]program.PackagesRequest{
		"a shell's text": {Dependencies: map[string]string{"foo": "1; rm -rf /"}},
		"nothing":        {},
		"no network":     {Dependencies: map[string]string{"six": ""}},
	} {
		if _, err := w.Packages().Install(w.ctx, "none", req, -1); !errors.Is(err, errs.Invalid) {
			t.Errorf("%s: InstallPackages = %v, want Invalid", name, err)
		}
	}
	if list, err := w.Execs().List(w.ctx, "none", live.ExecQuery{}); err != nil || len(list) != 0 {
		t.Errorf("there are execs: %+v, %v", list, err)
	}
}
