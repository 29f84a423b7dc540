package session_test

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/session"
)

// header is what a state of session main begins with.
func header() string {
	return "# cubby session state 1\n# uid " + strconv.Itoa(os.Getuid()) + "\n# name main\n# cwd /\n"
}

// Whatever is found in place of a state, the session goes on.
func TestHostileState(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, path string){
		"empty":           write(""),
		"of nobody":       write("x=1\n"),
		"binary":          write(header() + "\x00\x01\xff\xfe((("),
		"a syntax error":  write(header() + "x=1\nif (\n"),
		"cut off":         write(header() + "x=1\n"),
		"exit":            write(header() + "x=1\nexit 0\n"),
		"exec":            write(header() + "x=1\ntrap - EXIT\nbuiltin trap '' EXIT\n"),
		"return":          write(header() + "return 3\n"),
		"set -e":          write(header() + "set -eu\nfalse\n"),
		"a long line":     write(strings.Repeat("x", 1<<20)),
		"too large":       sparse(64 << 20),
		"another session": write(strings.Replace(header(), "name main", "name other", 1) + "x=1\n__cubby_loaded=yes\n"),
		"another user":    write(strings.Replace(header(), "uid ", "uid 9", 1) + "x=1\n__cubby_loaded=yes\n"),
		"a directory": func(t *testing.T, path string) {
			must(t, os.MkdirAll(filepath.Join(path, "sub"), 0o755))
		},
		"a FIFO": func(t *testing.T, path string) {
			must(t, syscall.Mkfifo(path, 0o600))
		},
		"a link": func(t *testing.T, path string) {
			must(t, os.Symlink("/etc/passwd", path))
		},
		"a link to nothing": func(t *testing.T, path string) {
			must(t, os.Symlink("/nowhere", path))
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.do(step{cmd: "x=0; cd /"})
			path := filepath.Join(b.dir("main"), session.File)
			must(t, os.Remove(path))
			spoil(t, path)
			b.do(
				step{cmd: "echo ${x-none}; pwd; echo $BASE; y=1", out: "none\n{work}\nbase\n", err: "aside"},
				step{cmd: "echo $y", out: "1\n"},
			)
		})
	}
}

func write(text string) func(t *testing.T, path string) {
	return func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte(text), 0o600)) }
}

func sparse(size int64) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		write(header())(t, path)
		must(t, os.Truncate(path, size))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A state that never comes to its end takes some commands with it, not the
// session.
func TestStateThatKillsItsShell(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.do(step{cmd: "x=0"})
	write(header()+"kill -KILL $$\n")(t, filepath.Join(b.dir("main"), session.File))
	for range 10 {
		b.do(step{cmd: "echo no", code: -1})
	}
	b.do(
		step{cmd: "echo ${x-none}", out: "none\n", err: "put aside (it did not come to its end)"},
		step{cmd: "echo $?", out: "0\n"},
	)
}

// A signal that ends the shell while it restores its state, as a stop of the
// sandbox sends, takes that command and not the state.
func TestSignalWhileAStateIsRestored(t *testing.T) {
	t.Parallel()
	for _, sig := range []string{"HUP", "INT", "USR1", "USR2", "PIPE", "ALRM", "TERM", "VTALRM", "XCPU", "KILL"} {
		t.Run(sig, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			b.do(step{cmd: "x=0; f() { echo f; }; cd /"})
			path := filepath.Join(b.dir("main"), session.File)
			state, err := os.ReadFile(path)
			must(t, err)
			hit := filepath.Join(b.work, "hit")
			must(t, os.WriteFile(hit, nil, 0o600))
			first, rest, _ := strings.Cut(string(state), "__cubby_cwd=")
			write(first+"[[ ! -e "+hit+" ]] || kill -"+sig+" $$\n__cubby_cwd="+rest)(t, path)
			b.do(step{cmd: "echo no", code: -1})
			must(t, os.Remove(hit))
			b.do(step{cmd: "echo $x; f; pwd", out: "0\nf\n/\n"})
		})
	}
}

// Nothing below a home is trusted, and what cannot be kept is said.
func TestHostileDirectory(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, b *box){
		"a file in the way": func(t *testing.T, b *box) {
			must(t, os.WriteFile(filepath.Join(b.home, ".cubby"), nil, 0o600))
		},
		"a link out": func(t *testing.T, b *box) {
			must(t, os.Symlink(b.work, filepath.Join(b.home, ".cubby")))
		},
		"a file for the session": func(t *testing.T, b *box) {
			must(t, os.MkdirAll(filepath.Dir(b.dir("main")), 0o700))
			must(t, os.WriteFile(b.dir("main"), nil, 0o600))
		},
		"no home": func(t *testing.T, b *box) { must(t, os.Remove(b.home)) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBox(t)
			spoil(t, b)
			b.do(
				step{cmd: "echo works; x=1", out: "works\n", err: "its state cannot be kept"},
				step{cmd: "echo ${x-none}", out: "none\n", err: "its state cannot be kept"},
			)
			if list, err := os.ReadDir(b.work); err != nil || len(list) > 0 {
				t.Errorf("outside of the home there is %v, %v", list, err)
			}
		})
	}
}

func TestStateThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.do(
		step{cmd: "x=1"},
		step{cmd: "x=2; rm -r {home}/.cubby", err: "its state could not be saved"},
		step{cmd: "echo ${x-none}; x=3", out: "none\n"},
		// As on a disk that is full.
		step{cmd: "x=4; ulimit -f 0; trap '' XFSZ", err: "its state could not be saved"},
		step{cmd: "echo $x", out: "3\n"},
	)
}

// A shell can be killed at any moment; what the next one finds is the state
// before or the state after, all of it.
func TestKilledWhileSaving(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	const script = `n=$((n + 1)); a=(); for i in {1..200}; do a+=("$n"); done; printf -v pad '%08192d' $n; f() { echo FN; }
		eval "$(declare -f f | sed "s/FN/$n/")"; cd "$(mkdir -p d$n && echo d$n)"; cd ..; OLD=$n`
	const show = `ok=$([[ "${a[*]}" == "$(for i in {1..200}; do echo -n "$n "; done | sed 's/ $//')" && $((10#$pad)) == $n && $(f) == $n && $OLD == $n ]] &&
		echo whole || echo torn); echo $n $ok; n=$n`
	b.do(step{cmd: b.expand(script)})
	// How long it takes, so that kills fall on all of it.
	began := time.Now()
	b.do(step{cmd: script})
	took := time.Since(began)
	at := 2
	for range 60 {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := b.prepare(ctx, step{cmd: script})
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, cmd.Start())
		kill := time.AfterFunc(time.Duration(rand.Int64N(int64(took*5/4))), func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait()
		kill.Stop()
		cancel()
		stdout, stderr, code := b.run(step{cmd: show})
		fields := strings.Fields(stdout)
		if len(fields) != 2 || fields[1] != "whole" || stderr != "" || code != 0 {
			t.Fatalf("after a kill: %q, %q, exit %d", stdout, stderr, code)
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil || n != at && n != at+1 {
			t.Fatalf("the state is of command %s, want %d or %d", fields[0], at, at+1)
		}
		at = n
	}
}

func FuzzReadHeader(f *testing.F) {
	f.Add([]byte(header() + "x=1\n"))
	f.Add([]byte("# cubby session state 1\n# uid 99999999999999999999\n# name \n# cwd \n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := session.ReadHeader(strings.NewReader(string(data)))
		if err == nil && (len(h.Cwd) > len(data) || strings.ContainsAny(h.Cwd+h.Name, "\n")) {
			t.Errorf("header %+v of %q", h, data)
		}
		if _, err := session.ReadHeader(io.LimitReader(strings.NewReader(string(data)), 3)); err == nil {
			t.Error("three bytes are a header")
		}
	})
}
