//go:build root

package guest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/capability"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guest"
	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// identified is withKernels with an environment, and the function that gives it
// another.
func identified(t *testing.T, env ...string) (h host, identify func(env ...string)) {
	t.Helper()
	var base []string
	h = withKernels(t, func(c *guestd.Config) {
		base = append(c.Boot.GetEnv(), "LANG=C.UTF-8")
		c.Boot.Env = append(slices.Clone(base), env...)
		c.MapPath = func(path string) string { // where everybody may write
			if path == "/workspace" {
				return os.TempDir()
			}
			return path
		}
	})
	was := ""
	return h, func(env ...string) {
		t.Helper()
		is := driver.Identity{ID: "mine", Env: append(slices.Clone(base), env...)}
		if _, err := agent.New(h.channel.Dial, new(capability.Known)).Identify(kernelContext(t), was, is); err != nil {
			t.Fatalf("Identify = %v", err)
		}
		was = is.ID
	}
}

// Kernels that were started for nobody have the environment of who comes, and
// nothing else changes in them.
func TestIdentifyReachesKernels(t *testing.T) {
	h, identify := identified(t, "A=old", "B=old", "C=old")
	for _, spec := range []sandbox.ExecSpec{
		python("import os; os.environ['C'] = 'own'; before = set(dir()); 40"),
		cellSpec("node", "node", "process.env.C = 'own'; let before = 40; 0"),
		cellSpec("r", "R", "Sys.setenv(C = 'own'); before <- 40"),
	} {
		h.cell(t, spec).wants(t, 0, sandbox.EndExited)
	}
	identify("A=new \"1\" 'x' \\\\ é\n", "C=new", "D=new")
	want := `new "1" 'x' \\ é` + "\n|none|own|new"
	for _, tt := range []struct{ spec sandbox.ExecSpec }{
		{python("print('|'.join(os.environ.get(n, 'none') for n in 'ABCD'), end='')")},
		{python("import subprocess, sys; r = subprocess.run([sys.executable, '-c', \"import os; print('|'.join(os.environ.get(n, 'none') for n in 'ABCD'), end='')\"])")},
		{cellSpec("node", "", "process.stdout.write([...'ABCD'].map((n) => process.env[n] ?? 'none').join('|'))")},
		{cellSpec("r", "", "cat(Sys.getenv(c('A', 'B', 'C', 'D'), 'none'), sep = '|')")},
	} {
		if s := h.cell(t, tt.spec); string(s.stdout) != want || len(s.stderr) > 0 {
			t.Errorf("%s: %s prints %q, %q; want %q", tt.spec.Cell.Kernel, tt.spec.Cell.Code, s.stdout, s.stderr, want)
		}
	}
	for _, tt := range []struct {
		spec sandbox.ExecSpec
		want string
	}{
		{python("_, len(In), sorted(Out), {n for n in set(dir()) - before if n[0] != '_'}"), "(40, 5, [1], {'before', 'r', 'subprocess', 'sys'})"},
		{cellSpec("node", "", "before + 2"), "42"},
		{cellSpec("r", "", "ls()"), `[1] "before"`},
	} {
		s := h.cell(t, tt.spec)
		if s.value() != tt.want {
			t.Errorf("%s: %s = %q, %+v; want %q", tt.spec.Cell.Kernel, tt.spec.Cell.Code, s.value(), s.records, tt.want)
		}
	}
	identify("A=again")
	if s := h.cell(t, python("os.environ['A']")); s.value() != "'again'" {
		t.Errorf("after another identity: %s", s.value())
	}
}

// A kernel that nobody has used, and whose interpreter reads at its start what
// the identity changes, is as if it had been started with that.
func TestIdentifyBeforeUse(t *testing.T) {
	h, identify := identified(t)
	for _, language := range []string{"python", "node", "r"} {
		if _, err := h.CreateKernel(kernelContext(t), sandbox.KernelSpec{Language: language, Cwd: "/"}); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	pids := map[string]int64{}
	for _, k := range []string{"python", "node", "r"} {
		pids[k] = h.kernel(t, k).PID
	}
	identify("A=1", "PYTHONPATH="+dir, "TERM=xterm", "MPLBACKEND=svg")
	if s := h.cell(t, python("import os, sys; "+pyQuote(dir)+" in sys.path, os.environ['TERM'], os.environ['MPLBACKEND']")); s.value() != "(True, 'dumb', 'svg')" {
		t.Errorf("python: %s", s.value())
	}
	if k := h.kernel(t, "python"); k.Restarts != 0 || k.Count != 1 || k.PID == pids["python"] {
		t.Errorf("the kernel: %+v", k)
	}
	identify("A=1")
	if s := h.cell(t, cellSpec("node", "", "process.env.A")); s.value() != "1" {
		t.Errorf("node: %s", s.value())
	}
}

// A spare kernel that is started again, because its interpreter reads at its start
// what the identity changes, lost the modules that were imported in it.
func TestSpareKernelLostItsModulesWithTheIdentity(t *testing.T) {
	h, identify := identified(t)
	for language, tt := range map[string]struct{ module, loaded, want string }{
		"python": {"mailbox", `"mailbox" in __import__("sys").modules, "mailbox" in dir(), __import__("os").environ["TZ"]`, "(True, False, 'Etc/GMT-6')"},
		"node":   {"node:http2", `[process.moduleLoadList.includes('NativeModule http2'), process.env.TZ].join()`, "true,Etc/GMT-4"},
		"R":      {"parallel", `c("parallel" %in% loadedNamespaces(), "parallel" %in% .packages(), Sys.getenv("TZ"))`, `[1] "TRUE"      "FALSE"     "Etc/GMT-1"`},
	} {
		h.prepare(t, language, tt.module)
		identify("TZ=Etc/GMT-" + strconv.Itoa(len(language)))
		if s := h.cell(t, cellSpec(language, language, tt.loaded)); s.value() != tt.want {
			t.Errorf("%s: %s, want %s; %+v", language, s.value(), tt.want, s.records)
		}
	}
}

// TestASpareKernelThatStartsAgainIsTheOne that whoever asks for a kernel meanwhile
// gets: there is no second one.
func TestASpareKernelThatStartsAgainIsTheOne(t *testing.T) {
	h, identify := identified(t)
	before := len(kernelProcesses(t))
	for i, pause := range []time.Duration{0, 3 * time.Millisecond, 15 * time.Millisecond} {
		name := fmt.Sprint("k", i)
		h.prepare(t, "python")
		identify("TZ=Etc/GMT-" + strconv.Itoa(i+1))
		time.Sleep(pause) // so that the process of before is about to end at one of them
		if s := h.cell(t, cellSpec(name, "python", "1")); s.value() != "1" {
			t.Fatalf("the cell of %s: %+v", name, s.records)
		}
		if n := len(kernelProcesses(t)) - before; n != i+1 {
			t.Errorf("%d kernels run, want %d", n, i+1)
		}
	}
}

func pyQuote(s string) string { return "'" + s + "'" }

// The agent of a copied sandbox has nothing of its parent's commands, and its
// kernels draw other random numbers.
func TestCopiedSandbox(t *testing.T) {
	h, _ := identified(t)
	ctx := kernelContext(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Chmod(dir, 0o777))

	begin := func(spec sandbox.ExecSpec) sandbox.UID {
		t.Helper()
		uid := sandbox.NewUID()
		s, err := h.Exec(ctx, uid, &guest.Start{ExecSpec: spec}, 0)
		must(t, err)
		must(t, s.Close())
		return uid
	}
	exists := func(name string) func() bool {
		return func() bool { _, err := os.Stat(at(name)); return err == nil }
	}
	h.cell(t, python("import random, ssl; random.seed(1); state = random.getstate(); x = 20; random.random()")).wants(t, 0, sandbox.EndExited)
	h.cell(t, cellSpec("r", "R", "set.seed(1); x <- 20")).wants(t, 0, sandbox.EndExited)
	h.cell(t, cellSpec("node", "node", "let x = 20")).wants(t, 0, sandbox.EndExited)
	h.cell(t, cellSpec("busy", "python", "import os, time, random; random.seed(1)")).wants(t, 0, sandbox.EndExited)
	loud := begin(shell("touch " + at("quiet") + "; until [ -e " + at("go") + " ]; do sleep 0.05; done; head -c 5000000 /dev/zero; touch " + at("loud")))
	cell := begin(cellSpec("busy", "", "open('"+at("runs")+"', 'w')\nwhile not os.path.exists('"+at("go")+"'): time.sleep(0.05)\nprint('x' * 5_000_000); open('"+at("ended")+"', 'w'); y = 1"))
	eventuallyKernel(t, exists("runs"))
	waiting := begin(cellSpec("busy", "", "z = 1"))
	asking := cellSpec("asks", "python", "open('"+at("asks")+"', 'w')\nanswer = 'none'\nanswer = input()")
	asking.Stdin = true
	begin(asking)
	eventuallyKernel(t, exists("quiet"))
	eventuallyKernel(t, exists("asks"))

	is := driver.Identity{ID: "copy", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "A=new"}}
	done := h.channel.Rekey("another-secret")
	_, warnings, err := agent.New(h.channel.Dial, new(capability.Known)).IdentifyCopy(ctx, "", is, "another-secret")
	must(t, err)
	done()
	if _, again, err := agent.New(h.channel.Dial, new(capability.Known)).IdentifyCopy(ctx, "", is, "another-secret"); err != nil || !slices.Equal(again, warnings) {
		t.Errorf("IdentifyCopy again = %q, %v; want what it was before: %q", again, err, warnings)
	}
	all := strings.Join(warnings, "\n")
	for _, want := range []string{`kernel "node" was ended`, `kernel "busy" runs a cell`, "these programs were running"} {
		if !strings.Contains(all, want) {
			t.Errorf("the warnings do not say %q: %s", want, all)
		}
	}
	for _, not := range []string{`kernel "python"`, `kernel "r"`} {
		if strings.Contains(all, not) {
			t.Errorf("the warnings say %q: %s", not, all)
		}
	}
	if list, err := h.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("execs of the copy: %+v, %v", list, err)
	}
	for _, uid := range []sandbox.UID{loud, cell, waiting} {
		if _, err := nextOf(h.Exec(ctx, uid, nil, 0)); !errors.Is(err, errs.NotFound) {
			t.Errorf("attach to an exec of the parent's: %v, want not found", err)
		}
	}

	for _, tt := range []struct {
		spec sandbox.ExecSpec
		want string
	}{
		{python("other = random.random(); random.setstate(state); x, other == random.random()"), "(20, False)"},
		{python("import os; os.environ['A']"), "'new'"},
		{cellSpec("r", "", "drawn <- runif(1); set.seed(1); c(x, drawn == runif(1))"), "[1] 20  0"},
		{cellSpec("node", "node", "typeof x"), "undefined"},
		{cellSpec("asks", "", "answer"), "'none'"},
	} {
		if s := h.cell(t, tt.spec); s.value() != tt.want {
			t.Errorf("%s: %s = %q %q, want %q", tt.spec.Cell.Kernel, tt.spec.Cell.Code, s.value(), s.rich, tt.want)
		}
	}
	touch(t, at("go"))
	eventuallyKernel(t, exists("loud"))
	eventuallyKernel(t, exists("ended"))
	s := h.cell(t, cellSpec("busy", "", "other = random.random(); random.seed(1); y, 'z' in dir(), other == random.random(), len(In)"))
	if s.value() != "(1, False, False, 4)" || bytes.Contains(s.stdout, []byte("x")) {
		t.Errorf("the kernel that was busy: %q, %.100q", s.value(), s.stdout)
	}
}
