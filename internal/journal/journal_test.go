package journal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var when = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

func openDir(t testing.TB, dir string, limits Limits) *Journals {
	t.Helper()
	j, err := Open(dir, limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return j
}

func create(t testing.TB, j *Journals, box sandbox.UID, seq int64) *Log {
	t.Helper()
	l, err := j.Create(box, seq)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return l
}

func write(t testing.TB, l *Log, s sandbox.Stream, text string) {
	t.Helper()
	if err := l.Append(sandbox.Output{Offset: l.Size(), Stream: s, Time: when, Data: []byte(text)}); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

func exited(code int) sandbox.Exit { return sandbox.Exit{Code: &code, Reason: sandbox.EndExited} }

// readAll returns all entries, with the pieces of a stream joined.
func readAll(t testing.TB, j *Journals, box sandbox.UID, seq, after int64) (pieces []sandbox.Output, exit *sandbox.Exit) {
	t.Helper()
	for e, err := range j.Read(t.Context(), box, seq, after, false) {
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		if e.Exit != nil {
			exit = e.Exit
			continue
		}
		if exit != nil {
			t.Fatalf("output after the exit: %+v", e.Output)
		}
		if n := len(pieces); n > 0 && pieces[n-1].Stream == e.Output.Stream {
			if got, want := e.Output.Offset, pieces[n-1].Offset+int64(len(pieces[n-1].Data)); got != want {
				t.Fatalf("a piece at %d, want %d", got, want)
			}
			pieces[n-1].Data = append(pieces[n-1].Data, e.Output.Data...)
			continue
		}
		pieces = append(pieces, e.Output)
	}
	return pieces, exit
}

func TestWriteAndRead(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, "one ")
	write(t, l, sandbox.Stdout, "two ")
	write(t, l, sandbox.Stderr, "bad")
	write(t, l, sandbox.Stdout, "three")
	want := []sandbox.Output{
		{Offset: 0, Stream: sandbox.Stdout, Time: when, Data: []byte("one two ")},
		{Offset: 8, Stream: sandbox.Stderr, Time: when, Data: []byte("bad")},
		{Offset: 11, Stream: sandbox.Stdout, Time: when, Data: []byte("three")},
	}
	check := func(state string, wantExit *sandbox.Exit) {
		t.Helper()
		got, exit := readAll(t, j, box, 1, 0)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", state, diff)
		}
		if diff := cmp.Diff(wantExit, exit); diff != "" {
			t.Errorf("%s, exit (-want +got):\n%s", state, diff)
		}
		for after := range int64(20) {
			got, _ := readAll(t, j, box, 1, after)
			var text []byte
			for i, o := range got {
				if i == 0 && o.Offset != after {
					t.Errorf("%s: reading from %d begins at %d", state, after, o.Offset)
				}
				text = append(text, o.Data...)
			}
			if want := "one two badthree"[min(after, 16):]; string(text) != want {
				t.Errorf("%s: reading from %d = %q, want %q", state, after, text, want)
			}
		}
	}
	check("open", nil)
	exit := exited(3)
	if err := l.Finish(exit); err != nil {
		t.Fatal(err)
	}
	check("finished", &exit)
	if got := l.Size(); got != 16 {
		t.Errorf("Size = %d, want 16", got)
	}

	c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: 5, Stderr: -1})
	if err != nil {
		t.Fatal(err)
	}
	wantCollected := Collected{Stdout: []byte("one t"), Stderr: []byte("bad"), StdoutCut: 8, Exit: &exit}
	if diff := cmp.Diff(wantCollected, c); diff != "" {
		t.Errorf("Collect (-want +got):\n%s", diff)
	}
}

func TestAppendIsIdempotentByOffset(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	piece := func(offset int64, text string) error {
		return l.Append(sandbox.Output{Offset: offset, Stream: sandbox.Stdout, Time: when, Data: []byte(text)})
	}
	for _, tt := range []struct {
		offset int64
		text   string
		want   error
		size   int64
	}{
		{0, "abc", nil, 3},
		{0, "abc", nil, 3},
		{1, "bcde", nil, 5},
		{5, "", nil, 5},
		{6, "g", errs.Internal, 5},
		{-1, "g", errs.Internal, 5},
		{5, "f", nil, 6},
	} {
		err := piece(tt.offset, tt.text)
		if (tt.want == nil) != (err == nil) || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("Append(%d, %q) = %v, want %v", tt.offset, tt.text, err, tt.want)
		}
		if got := l.Size(); got != tt.size {
			t.Errorf("Size after Append(%d, %q) = %d, want %d", tt.offset, tt.text, got, tt.size)
		}
	}
	if got, _ := readAll(t, j, box, 1, 0); len(got) != 1 || string(got[0].Data) != "abcdef" {
		t.Errorf("Read = %v", got)
	}
	if err := l.Append(sandbox.Output{Offset: 6, Stream: 7, Data: []byte("x")}); !errors.Is(err, errs.Internal) {
		t.Errorf("Append to an unknown stream = %v", err)
	}
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	if err := piece(6, "x"); !errors.Is(err, errs.WrongState) {
		t.Errorf("Append after Finish = %v, want wrong state", err)
	}
	if err := l.Finish(exited(1)); err != nil || *l.Exit().Code != 0 {
		t.Errorf("a second Finish = %v, exit %v; want the first to stay", err, *l.Exit().Code)
	}
}

func TestReopen(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{})
	l := create(t, j, box, 1)
	if again := create(t, j, box, 1); again != l {
		t.Error("Create of an open log made another one")
	}
	write(t, l, sandbox.Stdout, "before ")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(sandbox.Output{Offset: 7, Stream: sandbox.Stdout, Data: []byte("x")}); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Append after Close = %v", err)
	}
	if _, err := j.Create(box, 2); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Create after Close = %v", err)
	}

	j = openDir(t, dir, Limits{})
	l = create(t, j, box, 1)
	if got := l.Size(); got != 7 {
		t.Fatalf("Size after reopening = %d, want 7", got)
	}
	write(t, l, sandbox.Stdout, "after")
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	l = create(t, j, box, 1)
	if l.Exit() == nil || l.Size() != 12 {
		t.Errorf("a finished log reopened: exit %v, size %d", l.Exit(), l.Size())
	}
	if got, exit := readAll(t, j, box, 1, 0); len(got) != 1 || string(got[0].Data) != "before after" || exit == nil {
		t.Errorf("Read = %v, exit %v", got, exit)
	}
}

func TestRemoveAndBoxes(t *testing.T) {
	dir := t.TempDir()
	j := openDir(t, dir, Limits{})
	a, b := sandbox.NewUID(), sandbox.NewUID()
	l := create(t, j, a, 1)
	create(t, j, b, 1)
	if err := os.WriteFile(filepath.Join(dir, "lost+found"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	uids, err := j.Boxes()
	if err != nil || len(uids) != 2 {
		t.Errorf("Boxes = %v, %v, want two", uids, err)
	}
	for range 2 {
		if err := j.Remove(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Append(sandbox.Output{Stream: sandbox.Stdout, Data: []byte("x")}); !errors.Is(err, errs.NotFound) {
		t.Errorf("Append after Remove = %v", err)
	}
	if uids, err := j.Boxes(); err != nil || len(uids) != 1 || uids[0] != b {
		t.Errorf("Boxes after Remove = %v, %v", uids, err)
	}
}

func TestRichOutput(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{PerExec: 8})
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, "out")
	write(t, l, sandbox.Rich, "{1}\n")
	write(t, l, sandbox.Rich, "{2}\n") // 3 fit
	if _, _, rich := l.Cut(); rich != 1 {
		t.Errorf("Cut = %d bytes of rich output, want 1", rich)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openDir(t, dir, Limits{PerExec: 8})
	l = create(t, j, box, 1)
	write(t, l, sandbox.Rich, "more")
	exit := exited(0)
	exit.RichCut = 7 // that the agent did not keep
	if err := l.Finish(exit); err != nil {
		t.Fatal(err)
	}
	got, exits := readAll(t, j, box, 1, 0)
	want := []sandbox.Output{
		{Offset: 0, Stream: sandbox.Stdout, Time: when, Data: []byte("out")},
		{Offset: 3, Stream: sandbox.Rich, Time: when, Data: []byte("{1}\n{2}")},
	}
	if diff := cmp.Diff(want, got); diff != "" || exits == nil {
		t.Errorf("Read (-want +got):\n%s", diff)
	}
	exit.RichCut = 12
	c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: -1, Stderr: -1, Rich: 5})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Collected{Stdout: []byte("out"), Rich: []byte("{1}\n{"), RichCut: 14, Exit: &exit}, c); diff != "" {
		t.Errorf("Collect (-want +got):\n%s", diff)
	}
	ring := createRing(t, j, box, 2)
	if err := ring.Append(sandbox.Output{Stream: sandbox.Rich, Data: []byte("{}\n")}); !errors.Is(err, errs.Internal) {
		t.Errorf("rich output of a terminal: %v, want it refused", err)
	}
}

// A log that was cut before there was a rich stream goes on.
func TestOldCutRecord(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	text := append([]byte(magic), record(kindStdout, 0, []byte("12345"))...)
	text = append(text, record(kindCut, 5, cuts{stdout: 3, stderr: 4}.encode()[:oldCutsSize])...)
	if err := os.Mkdir(filepath.Join(dir, string(box)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, string(box), "1.log"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	l := create(t, openDir(t, dir, Limits{PerExec: 3}), box, 1)
	if out, stderr, rich := l.Cut(); out != 3 || stderr != 4 || rich != 0 || l.Size() != 12 {
		t.Fatalf("Cut = %d, %d, %d, Size = %d", out, stderr, rich, l.Size())
	}
	write(t, l, sandbox.Rich, "{}")
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	c, err := openDir(t, dir, Limits{}).Collect(t.Context(), box, 1, Caps{Stdout: -1})
	if err != nil || string(c.Stdout) != "12345" || c.StdoutCut != 3 || c.StderrCut != 4 || c.RichCut != 2 {
		t.Errorf("Collect = %+v, %v", c, err)
	}
}
