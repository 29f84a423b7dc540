package journal

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestPerExecCap(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{PerExec: 10})
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, "1234567")
	write(t, l, sandbox.Stderr, "abcdef") // 3 fit
	write(t, l, sandbox.Stdout, "89")
	if out, stderr, _ := l.Cut(); out != 2 || stderr != 3 || l.Size() != 15 {
		t.Errorf("Cut = %d, %d, Size = %d; want 2, 3, 15", out, stderr, l.Size())
	}
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, string(box), "1.log"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	for range 100 {
		write(t, l, sandbox.Stdout, "0123456789")
	}
	if got := size(); got != before {
		t.Errorf("the file grew from %d to %d bytes by counting what was cut", before, got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	j = openDir(t, dir, Limits{PerExec: 10})
	l = create(t, j, box, 1)
	if got := l.Size(); got != 1015 {
		t.Errorf("Size after reopening = %d, want 1015", got)
	}
	write(t, l, sandbox.Stderr, "x")
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: 5, Stderr: 5})
	if err != nil {
		t.Fatal(err)
	}
	exit := exited(0)
	exit.StdoutCut, exit.StderrCut = 1002, 4
	want := Collected{Stdout: []byte("12345"), Stderr: []byte("abc"), StdoutCut: 1004, StderrCut: 4, Exit: &exit}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("Collect (-want +got):\n%s", diff)
	}
}

// A cell that printed more than is kept still has what it showed at its end,
// at the offsets that it had.
func TestRichAfterTextWasCut(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{PerExec: 20})
	l := create(t, j, box, 1)
	follow, stop := iter.Pull2(j.Read(t.Context(), box, 1, 0, true))
	defer stop()
	wants := func(next func() (Entry, error, bool), offset int64, text string) {
		t.Helper()
		if e, err, ok := next(); err != nil || !ok || e.Exit != nil || e.Output.Offset != offset || string(e.Output.Data) != text {
			t.Errorf("read %+v, %v, want %q at %d", e, err, text, offset)
		}
	}
	write(t, l, sandbox.Stdout, strings.Repeat("o", 30)) // 20 are kept
	wants(follow, 0, strings.Repeat("o", 20))
	write(t, l, sandbox.Stderr, "e")
	write(t, l, sandbox.Rich, "{}\n")
	wants(follow, 31, "{}\n")
	write(t, l, sandbox.Stdout, "oo")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	j = openDir(t, dir, Limits{PerExec: 20})
	l = create(t, j, box, 1)
	write(t, l, sandbox.Stderr, "ee")
	write(t, l, sandbox.Rich, "{2}\n") // 2 are kept
	write(t, l, sandbox.Rich, "{3}\n")
	if first, end, err := j.Span(box, 1); first != 0 || end != 40 || err != nil {
		t.Errorf("Span = %d, %d, %v", first, end, err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openDir(t, dir, Limits{PerExec: 20})
	l = create(t, j, box, 1)
	write(t, l, sandbox.Rich, "{4}\n")
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	if first, end, err := j.Span(box, 1); first != 0 || end != 40 || err != nil {
		t.Errorf("Span of a finished log = %d, %d, %v", first, end, err)
	}
	exit := exited(0)
	exit.StdoutCut, exit.StderrCut, exit.RichCut = 12, 3, 10
	want := Collected{
		Stdout: []byte(strings.Repeat("o", 20)), Rich: []byte("{}\n{2"), StdoutCut: 12, StderrCut: 3, RichCut: 10, Exit: &exit,
	}
	c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: -1, Stderr: -1, Rich: -1})
	if diff := cmp.Diff(want, c); diff != "" || err != nil {
		t.Errorf("Collect (-want +got):\n%s%v", diff, err)
	}
	for after, offset := range map[int64]int64{20: 31, 25: 31, 31: 31, 34: 38, 37: 38} {
		next, stop := iter.Pull2(j.Read(t.Context(), box, 1, after, false))
		wants(next, offset, map[int64]string{31: "{}\n", 38: "{2"}[offset])
		stop()
	}
}

func TestPerSandboxCap(t *testing.T) {
	const limit = 64 << 10
	dir, box, other := t.TempDir(), sandbox.NewUID(), sandbox.NewUID()
	j := openDir(t, dir, Limits{PerSandbox: limit})
	chunk := string(make([]byte, 10<<10))
	write(t, create(t, j, other, 1), sandbox.Stdout, chunk)
	open := create(t, j, box, 1)
	write(t, open, sandbox.Stdout, chunk)
	for seq := int64(2); seq <= 20; seq++ {
		l := create(t, j, box, seq)
		write(t, l, sandbox.Stdout, chunk)
		if out, _, _ := l.Cut(); out != 0 {
			t.Fatalf("log %d was cut although older ones could go", seq)
		}
		if err := l.Finish(exited(0)); err != nil {
			t.Fatal(err)
		}
		if usage, err := j.Usage(box); err != nil || usage > limit {
			t.Fatalf("usage after log %d = %d, %v, want at most %d", seq, usage, err, limit)
		}
	}
	for seq, want := range map[int64]error{1: nil, 2: errs.NotFound, 15: errs.NotFound, 20: nil} {
		_, err := j.Collect(t.Context(), box, seq, Caps{})
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("Collect of log %d = %v, want %v", seq, err, want)
		}
	}
	if _, err := j.Collect(t.Context(), other, 1, Caps{}); err != nil {
		t.Errorf("another sandbox's log: %v", err)
	}
	for range 10 {
		write(t, open, sandbox.Stdout, chunk)
	}
	if out, _, _ := open.Cut(); out == 0 {
		t.Error("nothing was cut from a log that alone is over the cap")
	}
	usage, err := j.Usage(box)
	if err != nil || usage > limit+4096 {
		t.Errorf("usage = %d, %v, want about %d at most", usage, err, limit)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openDir(t, dir, Limits{PerSandbox: limit})
	if again, err := j.Usage(box); err != nil || again != usage {
		t.Errorf("usage after reopening = %d, %v, want %d", again, err, usage)
	}
}

func TestFullDisk(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{})
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, "kept")
	l.write = func(f *os.File, at int64, parts ...[]byte) error {
		// As a real full disk: a part fits.
		if _, err := f.WriteAt(parts[0][:7], at); err != nil {
			return err
		}
		return &os.PathError{Op: "pwritev", Path: f.Name(), Err: syscall.ENOSPC}
	}
	err := l.Append(sandbox.Output{Offset: 4, Stream: sandbox.Stdout, Data: []byte("lost")})
	if !errors.Is(err, errs.Exhausted) {
		t.Errorf("Append = %v, want exhausted", err)
	}
	if l.Size() != 4 {
		t.Errorf("Size = %d, want 4", l.Size())
	}
	l.write = pwritev
	write(t, l, sandbox.Stdout, " and more")
	l.write = func(*os.File, int64, ...[]byte) error { return syscall.ENOSPC }
	if err := l.Finish(exited(0)); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Finish = %v, want exhausted", err)
	}
	if l.Exit() == nil {
		t.Error("a Finish that could not be written did not end the log")
	}
	got, exit := readAll(t, j, box, 1, 0)
	if len(got) != 1 || string(got[0].Data) != "kept and more" || exit != nil {
		t.Errorf("Read = %v, exit %v", got, exit)
	}
}

func TestPrune(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{})
	create(t, j, box, 1) // stays open
	for seq := int64(2); seq <= 3; seq++ {
		if err := create(t, j, box, seq).Finish(exited(0)); err != nil {
			t.Fatal(err)
		}
	}
	for seq, at := range map[int64]time.Time{1: when, 2: when, 3: when.Add(2 * time.Hour)} {
		if err := os.Chtimes(filepath.Join(dir, string(box), fmt.Sprint(seq, ".log")), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Prune(when.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for seq, want := range map[int64]bool{1: true, 2: false, 3: true} {
		_, err := j.Collect(t.Context(), box, seq, Caps{})
		if (err == nil) != want {
			t.Errorf("log %d after Prune: %v, want kept = %v", seq, err, want)
		}
	}
	if usage, err := j.Usage(box); err != nil || usage != 2*4096 {
		t.Errorf("usage = %d, %v, want %d", usage, err, 2*4096)
	}
}
