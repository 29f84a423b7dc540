//go:build root

package startup

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A kernel of ipykernel begins without what it needs later, or never, and is the same
// all the same: what lies where it begins is not imported before a cell asks for it, and
// whoever wants the rest gets it.
func TestLaunch(t *testing.T) {
	c, _, home := start(t, "python3", "python", "random.py", "IPython.py", "runpy.py", "importlib.py", "jedi.py", "parso.py", "debugpy.py", "psutil.py")
	shows(t, c, [][2]string{
		{"import sys; [m for m in ('prompt_toolkit', 'IPython.terminal.embed', 'jedi', 'jedi.api.classes', 'parso', 'debugpy', 'pydevd') if m in sys.modules]", "[]"},
		{"import os, ipykernel.kernelbase; ipykernel.kernelbase.psutil.Process().pid == os.getpid()", "True"},
		{"import gc, psutil; psutil.Process().pid == os.getpid(), gc.isenabled(), gc.get_freeze_count() > 20000", "(True, True, True)"},
		{"mine = []; gc.get_referrers(mine) == [globals()]", "True"},
		{"os.path.basename(sys.argv[0]), __name__, sys.modules['__main__'].__name__", "('ipykernel_launcher.py', '__main__', '__main__')"},
		{"sys.path.count('')", "1"},
		{"import IPython; hasattr(IPython, 'nothing'), hasattr(IPython.terminal, 'nothing'), IPython.get_ipython() is get_ipython()", "(False, False, True)"},
		{"isinstance(get_ipython(), IPython.terminal.interactiveshell.TerminalInteractiveShell)", "False"},
		{"IPython.terminal.embed.InteractiveShellEmbed.__name__", "'InteractiveShellEmbed'"},
		{"from IPython import embed; embed.__module__, embed.__name__", "('IPython.terminal.embed', 'embed')"},
		{"from IPython.core import completer; completer.JEDI_INSTALLED, get_ipython().Completer.use_jedi", "(True, True)"},
		{"len(completer.jedi.Interpreter('sys.vers', [globals()]).complete()) > 0, completer.jedi.settings.case_insensitive_completion", "(True, False)"},
		{"sys.path.remove(''); import jedi; jedi.__version__[0].isdigit(), completer.jedi.Interpreter is jedi.Interpreter, jedi.settings is completer.jedi.settings", "(True, True, True)"},
		{"import debugpy.server.api; 'pydevd' in sys.modules", "True"},
		{"In[-2][:14], Out[len(In) - 2], get_ipython().history_manager.enabled", "('import debugpy', True, False)"},
	})
	if database, err := filepath.Glob(filepath.Join(home, "profile_default", "history*")); err != nil || database != nil {
		t.Errorf("there is a database of cells: %q, %v", database, err)
	}
}

// A jedi that cannot be imported is none, as for IPython itself.
func TestLaunchWithoutJedi(t *testing.T) {
	c, _, _ := start(t, "python3", "python")
	shows(t, c, [][2]string{
		{"import os, sys; sys.modules['jedi'] = None; from IPython.core import completer; completer.JEDI_INSTALLED", "True"},
		{"'os.path' in get_ipython().complete('os.pat')[1]", "True"},
		{"completer.jedi.Interpreter('os.pat', [globals()]) is None, completer.JEDI_INSTALLED, get_ipython().Completer.use_jedi", "(False, False, False)"},
		{"'os.path' in get_ipython().complete('os.pat')[1]", "True"},
	})
}

// A Python of another make has no gc.freeze, and begins all the same.
func TestLaunchWithoutFreeze(t *testing.T) {
	cmd := exec.Command("/usr/bin/python3", "-c", "import gc; del gc.freeze\n"+strings.Replace(launch,
		`runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)`, `print("ipykernel.kernelapp" in sys.modules)`, 1))
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "True\n" {
		t.Errorf("launched: %s %v", out, err)
	}
}

// gather has the image's own program gather what a kernel of this machine imports, changed by
// some lines of Python that know index, code, and mark(name), which makes a module say
// that its code is from there. It returns the file.
func gather(t *testing.T, change string) string {
	t.Helper()
	program, err := filepath.Abs("../../../images/base/files/usr/lib/cubby/kernel-modules.py")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kernel-modules")
	cmd := exec.Command("/usr/bin/python3", "-Xfrozen_modules=off", "-c", fmt.Sprintf(`
import marshal, runpy
program = runpy.run_path(%q)
index, code = program["gather"]()
def mark(name):
    global code
    path, package, time, size, at, length = index[name]
    with open(path) as source:
        marked = marshal.dumps(compile(source.read() + "\ngathered = True\n", path, "exec"))
    index[name] = path, package, time, size, len(code), len(marked)
    code += marked
%s
program["write"](%q, index, code)
`, program, change, file))
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// from makes a kernel begin with a file of gathered modules, and with a directory before
// those of its system.
func from(t *testing.T, file, first string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		before := strings.Join(cmd.Args, "\x00")
		after := strings.ReplaceAll(before, `"/usr/lib/cubby/kernel-modules"`, fmt.Sprintf("%q", file))
		if after == before {
			t.Fatal("the launch names no file")
		}
		cmd.Args = strings.Split(after, "\x00")
		cmd.Env = append(cmd.Env, "PYTHONPATH="+first)
	}
}

const gatheredOf = "[m for m in ('IPython.core.release', 'IPython', 'ipykernel.kernelapp', 'asyncio.staggered', 'traitlets', 'decorator') if hasattr(sys.modules[m], 'gathered')]"

// Modules come from the file of the image, and only those that stand where they stood as
// it was written, as they were.
func TestLaunchGathered(t *testing.T) {
	first := t.TempDir()
	file := gather(t, `
import shutil
shutil.copy(index["decorator"][0], `+fmt.Sprintf("%q", first)+`)
for name in "IPython.core.release", "IPython", "ipykernel.kernelapp", "asyncio.staggered", "traitlets", "decorator":
    mark(name)
path, package, time, size, *where = index["traitlets"]
index["traitlets"] = path, package, time, size + 1, *where
path, package, time, size, *where = index["asyncio.staggered"]
index["asyncio.staggered"] = path, package, time + 1, size, *where
path, package, time, size, at, length = index["traitlets.traitlets"]
index["traitlets.traitlets"] = path, package, time, size, at, 9
path, package, time, size, at, length = index["ipykernel.ipkernel"]
index["ipykernel.ipkernel"] = path, package, time, size, at + 1, length
`)
	c, _, _ := startChanged(t, "python3", "python", from(t, file, first), "decorator.py", "stack_data.py")
	shows(t, c, [][2]string{
		{"import sys; " + gatheredOf, "['IPython.core.release', 'IPython', 'ipykernel.kernelapp']"},
		{fmt.Sprintf("sys.modules['decorator'].__file__.startswith(%q)", first), "True"},
		{"'_gathered' in repr(sys.meta_path), len(sys.meta_path) >= 3", "(False, True)"},
		{"import IPython.core.release as r, inspect; type(r.__loader__).__name__, type(r.__spec__.loader).__name__, r.__name__ == r.__spec__.name", "('SourceFileLoader', 'SourceFileLoader', True)"},
		{"import importlib.util; r.__spec__.cached == r.__cached__ == importlib.util.cache_from_source(r.__file__), r.__spec__.has_location, r.__package__", "(True, True, 'IPython.core')"},
		{"import IPython; IPython.__path__ == [IPython.__file__.rpartition('/')[0]], IPython.__spec__.submodule_search_locations == IPython.__path__", "(True, True)"},
		{"'gathered' in inspect.getsource(r), importlib.reload(r) is r, len(sys.modules) > 300", "(False, True, True)"},
	})
}

// A file that is not whole, or another Python's, is none.
func TestLaunchGatheredDamaged(t *testing.T) {
	file := gather(t, `mark("IPython.core.release"); mark("decorator")`)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"none":     func(b []byte) []byte { return b },
		"empty":    func([]byte) []byte { return nil },
		"short":    func(b []byte) []byte { return b[:len(b)/2] },
		"a python": func(b []byte) []byte { b[0]++; return b },
		"an index": func(b []byte) []byte { b[20] = 0; return b },
	} {
		want := "[]"
		if name == "none" {
			want = "['IPython.core.release', 'decorator']"
		}
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, damage(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/usr/bin/python3", "-c", launch)
			cmd.Dir = t.TempDir()
			cmd.Env = os.Environ()
			from(t, file, cmd.Dir)(cmd)
			// In the place of a kernel that goes on.
			cmd.Args[2] = strings.Replace(cmd.Args[2], `runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)`, "print("+gatheredOf+")", 1)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != want {
				t.Errorf("gathered: %s %v, want %s", out, err, want)
			}
		})
	}
}
