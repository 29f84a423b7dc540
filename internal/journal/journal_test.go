package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func TestFollow(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	const followers, pieces = 20, 200
	var wg sync.WaitGroup
	for f := range followers {
		after := int64(f)
		wg.Go(func() {
			var got []byte
			var exit *sandbox.Exit
			for e, err := range j.Read(t.Context(), box, 1, after, true) {
				if err != nil {
					t.Errorf("follower %d: %v", f, err)
					return
				}
				got, exit = append(got, e.Output.Data...), e.Exit
			}
			var want []byte
			for i := range pieces {
				want = fmt.Appendf(want, "line %d\n", i)
			}
			if exit == nil || !bytes.Equal(got, want[after:]) {
				t.Errorf("follower %d: %d bytes, exit %v; want %d bytes and an exit", f, len(got), exit, len(want)-f)
			}
		})
	}
	for i := range pieces {
		write(t, l, sandbox.Stdout, fmt.Sprintf("line %d\n", i))
	}
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if l.file != nil {
		t.Error("the file is open after the last follower left")
	}
}

// TestFollowerSeesEachPieceAtOnce has writer and reader take turns: a wake-up
// that comes late or not at all would hang.
func TestFollowerSeesEachPieceAtOnce(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, "0")
	n := 0
	for e, err := range j.Read(t.Context(), box, 1, 0, true) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Exit != nil {
			break
		}
		if n++; n == 1000 {
			if err := l.Finish(exited(0)); err != nil {
				t.Fatal(err)
			}
			continue
		}
		go func() {
			if err := l.Append(sandbox.Output{Offset: l.Size(), Stream: sandbox.Stdout, Data: []byte("x")}); err != nil {
				t.Errorf("Append: %v", err)
			}
		}()
	}
	if n != 1000 {
		t.Errorf("%d pieces, want 1000", n)
	}
}

func TestFollowersEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(j *Journals, l *Log, box sandbox.UID, cancel func()) error
		want error
	}{
		{"canceled", func(_ *Journals, _ *Log, _ sandbox.UID, cancel func()) error { cancel(); return nil }, context.Canceled},
		{"closed", func(_ *Journals, l *Log, _ sandbox.UID, _ func()) error { return l.Close() }, errs.Unavailable},
		{"all closed", func(j *Journals, _ *Log, _ sandbox.UID, _ func()) error { return j.Close() }, errs.Unavailable},
		{"removed", func(j *Journals, _ *Log, box sandbox.UID, _ func()) error { return j.Remove(box) }, errs.NotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			j := openDir(t, t.TempDir(), Limits{})
			box := sandbox.NewUID()
			l := create(t, j, box, 1)
			write(t, l, sandbox.Stdout, "x")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			entries := 0
			for _, err := range j.Read(ctx, box, 1, 0, true) {
				if entries++; entries == 1 {
					if err != nil {
						t.Fatal(err)
					}
					if err := tt.end(j, l, box, cancel); err != nil {
						t.Fatal(err)
					}
				} else if !errors.Is(err, tt.want) {
					t.Errorf("entry %d: %v, want %v", entries, err, tt.want)
				}
			}
			if entries != 2 {
				t.Errorf("%d entries, want 2", entries)
			}
		})
	}
}

func TestReadErrors(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{})
	box := sandbox.NewUID()
	create(t, j, box, 1)
	for _, tt := range []struct {
		name       string
		box        sandbox.UID
		seq, after int64
		want       error
	}{
		{"unknown box", sandbox.NewUID(), 1, 0, errs.NotFound},
		{"unknown exec", box, 2, 0, errs.NotFound},
		{"negative offset", box, 1, -1, errs.Invalid},
		{"path for a uid", "../x", 1, 0, errs.Invalid},
	} {
		n := 0
		for _, err := range j.Read(t.Context(), tt.box, tt.seq, tt.after, true) {
			if n++; !errors.Is(err, tt.want) {
				t.Errorf("%s = %v, want %v", tt.name, err, tt.want)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d entries, want 1", tt.name, n)
		}
	}
	if _, err := j.Create("../x", 1); !errors.Is(err, errs.Invalid) {
		t.Errorf("Create with a path for a uid = %v", err)
	}
	if _, err := j.Create(box, 0); !errors.Is(err, errs.Invalid) {
		t.Errorf("Create with number 0 = %v", err)
	}
}

func TestPerExecCap(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{PerExec: 10})
	l := create(t, j, box, 1)
	write(t, l, sandbox.Stdout, "1234567")
	write(t, l, sandbox.Stderr, "abcdef") // 3 fit
	write(t, l, sandbox.Stdout, "89")
	if out, stderr := l.Cut(); out != 2 || stderr != 3 || l.Size() != 15 {
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
		if out, _ := l.Cut(); out != 0 {
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
	if out, _ := open.Cut(); out == 0 {
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

// TestModel appends at random, tears the file at random as a crash would, and
// compares every read with a model in memory.
func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir, box := t.TempDir(), sandbox.NewUID()
		limits := Limits{}
		if seed%3 == 0 {
			limits.PerExec = 1 + rng.Int64N(200_000)
		}
		j := openDir(t, dir, limits)
		l := create(t, j, box, 1)
		var model []byte             // output bytes, without what was cut
		var streams []sandbox.Stream // of each byte
		cutFrom := func() int64 {
			if limits.PerExec > 0 {
				return limits.PerExec
			}
			return 1 << 62
		}()
		for step := range 60 {
			switch n := rng.IntN(20); {
			case n < 15:
				stream := sandbox.Stream(1 + rng.IntN(2))
				size := []int{1, 10, 1000, 32 << 10, 150_000}[rng.IntN(5)]
				data := make([]byte, 1+rng.IntN(size))
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				write(t, l, stream, string(data))
				for _, c := range data {
					if int64(len(model)) < cutFrom {
						model, streams = append(model, c), append(streams, stream)
					}
				}
			case n < 17: // the daemon dies, and the file loses its end
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, string(box), "1.log")
				tear(t, rng, path)
				j = openDir(t, dir, limits)
				l = create(t, j, box, 1)
				out, stderr := l.Cut()
				kept := l.Size() - out - stderr
				if kept > int64(len(model)) {
					t.Fatalf("seed %d, step %d: %d bytes after a crash, of %d", seed, step, kept, len(model))
				}
				model, streams = model[:kept], streams[:kept]
			default:
				after := rng.Int64N(int64(len(model)) + 2)
				at := min(after, int64(len(model)))
				for e, err := range j.Read(t.Context(), box, 1, after, false) {
					if err != nil {
						t.Fatalf("seed %d, step %d: Read: %v", seed, step, err)
					}
					o := e.Output
					end := o.Offset + int64(len(o.Data))
					if o.Offset != at || len(o.Data) == 0 || end > int64(len(model)) || !bytes.Equal(o.Data, model[at:end]) {
						t.Fatalf("seed %d, step %d: a piece of %d bytes at %d, want the model's at %d", seed, step, len(o.Data), o.Offset, at)
					}
					for i := range o.Data {
						if streams[at+int64(i)] != o.Stream {
							t.Fatalf("seed %d, step %d: byte %d is from %v", seed, step, at+int64(i), o.Stream)
						}
					}
					at = end
				}
				if at != int64(len(model)) {
					t.Fatalf("seed %d, step %d: reading from %d ended at %d of %d", seed, step, after, at, len(model))
				}
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// tear does to a file what crashes do: cut it anywhere, fill its end with
// zeros or with noise.
func tear(t *testing.T, rng *rand.Rand, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := len(b) - rng.IntN(min(len(b), 100_000)+1)
	switch rng.IntN(3) {
	case 0:
		b = b[:at]
	case 1:
		if at < len(magic) {
			at = 0 // blocks become zero, not parts of words
		}
		clear(b[at:])
	case 2:
		if at < len(magic) {
			return // that is no tail: the file is refused, see TestForeignFile
		}
		for i := at; i < len(b); i++ {
			b[i] = byte(rng.Uint32())
		}
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestForeignFile(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{})
	create(t, j, box, 1)
	path := filepath.Join(dir, string(box), "2.log")
	content := []byte("CUBBYJ\x00\x02 of a newer version")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Create(box, 2); !errors.Is(err, errs.Internal) {
		t.Errorf("Create = %v, want internal", err)
	}
	if _, err := j.Collect(t.Context(), box, 2, Caps{}); !errors.Is(err, errs.Internal) {
		t.Errorf("Collect = %v, want internal", err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file became %q, %v", got, err)
	}
}

// TestDamageIsNamed flips a bit in the middle of a finished log: what was
// before is read, and then the reader is told.
func TestDamageIsNamed(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{})
	l := create(t, j, box, 1)
	for range 10 {
		write(t, l, sandbox.Stdout, "0123456789")
		write(t, l, sandbox.Stderr, "e")
	}
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, string(box), "1.log")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var got int
	for e, err := range j.Read(t.Context(), box, 1, 0, true) {
		if err != nil {
			if !errors.Is(err, errs.Internal) || errs.Public(err).Message == "internal error" || got == 0 {
				t.Errorf("after %d bytes: %v, want damage named", got, err)
			}
			return
		}
		got += len(e.Output.Data)
	}
	t.Errorf("read %d bytes of a damaged log without an error", got)
}
