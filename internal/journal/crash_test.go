package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

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
		var model modelled
		var kept int64
		for step := range 60 {
			switch n := rng.IntN(20); {
			case n < 15:
				stream := sandbox.Stream(1 + rng.IntN(3))
				size := []int{1, 10, 1000, 32 << 10, 150_000}[rng.IntN(5)]
				data := noise(rng, 1+rng.IntN(size))
				write(t, l, stream, string(data))
				limit := limits.PerExec
				if stream == sandbox.Rich {
					limit += limit / 4
				}
				fits := int64(len(data))
				if limit > 0 {
					fits = min(fits, max(limit-kept, 0))
				}
				model = model.add(data, stream, fits)
				kept += fits
			case n < 17: // the daemon dies, and the file loses its end
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, string(box), "1.log")
				tear(t, rng, path)
				j = openDir(t, dir, limits)
				l = create(t, j, box, 1)
				if l.Size() > int64(len(model)) {
					t.Fatalf("seed %d, step %d: %d bytes after a crash, of %d", seed, step, l.Size(), len(model))
				}
				model = model[:l.Size()]
				kept = model.kept()
				if out, stderr, rich := l.Cut(); l.Size()-out-stderr-rich != kept {
					t.Fatalf("seed %d, step %d: %d bytes were cut of %d, want %d to be kept", seed, step, out+stderr+rich, l.Size(), kept)
				}
			default:
				after := rng.Int64N(int64(len(model)) + 2)
				at := min(after, int64(len(model)))
				cut := func(to int64) {
					if lost, ok := model.firstKept(at, to); ok {
						t.Fatalf("seed %d, step %d: byte %d was left out", seed, step, lost)
					}
					at = max(at, to)
				}
				for e, err := range j.Read(t.Context(), box, 1, after, false) {
					if err != nil {
						t.Fatalf("seed %d, step %d: Read: %v", seed, step, err)
					}
					o := e.Output
					if end := o.Offset + int64(len(o.Data)); o.Offset < at || len(o.Data) == 0 || end > int64(len(model)) {
						t.Fatalf("seed %d, step %d: a piece of %d bytes at %d, want one at %d", seed, step, len(o.Data), o.Offset, at)
					}
					cut(o.Offset)
					if wrong, ok := model.firstOther(at, o.Data, o.Stream); ok {
						t.Fatalf("seed %d, step %d: byte %d of stream %d should be %+v", seed, step, wrong, o.Stream, model[wrong])
					}
					at += int64(len(o.Data))
				}
				cut(int64(len(model)))
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// written is a byte of output, and whether it is kept.
type written struct {
	char   byte
	stream sandbox.Stream
	kept   bool
}

// modelled are all that were written. Millions of them are looked at, which the
// race detector would make most of the test.
type modelled []written

// add adds bytes, the first so many of which are kept.
//
//go:norace
func (m modelled) add(data []byte, stream sandbox.Stream, fits int64) modelled {
	for i, c := range data {
		m = append(m, written{c, stream, int64(i) < fits})
	}
	return m
}

//go:norace
func (m modelled) kept() (n int64) {
	for _, o := range m {
		if o.kept {
			n++
		}
	}
	return n
}

// firstKept finds a byte that is kept.
//
//go:norace
func (m modelled) firstKept(from, to int64) (int64, bool) {
	for ; from < to; from++ {
		if m[from].kept {
			return from, true
		}
	}
	return 0, false
}

// firstOther finds a byte that is not what was read, or not kept.
//
//go:norace
func (m modelled) firstOther(from int64, data []byte, stream sandbox.Stream) (int64, bool) {
	for i, c := range data {
		if o := m[from+int64(i)]; o.char != c || o.stream != stream || !o.kept {
			return from + int64(i), true
		}
	}
	return 0, false
}

// noise is the same for the same seed.
//
//go:norace
func noise(rng *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data
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

// FuzzFile has any bytes for a log: opening and reading it ends, with what is
// whole or with an error, and what was reopened can be appended to and read.
func FuzzFile(f *testing.F) {
	whole := []byte(magic)
	whole = append(whole, record(kindStdout, 0, []byte("some output"))...)
	whole = append(whole, record(kindStderr, 11, []byte("more"))...)
	f.Add(append(bytes.Clone(whole), record(kindExit, 15, []byte(`{"exit_code":0,"reason":"exited"}`))...))
	f.Add(append(bytes.Clone(whole), record(kindCut, 15, cuts{3, 4, 5}.encode())...))
	f.Add(append(bytes.Clone(whole), 0, 0, 0, 0))
	f.Add(whole[:len(whole)-2])
	f.Add([]byte(magic[:3]))
	box := sandbox.NewUID()
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, string(box), "1.log")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		j := openDir(t, dir, Limits{})
		for _, err := range j.Read(t.Context(), box, 1, 3, true) {
			if err != nil && !errors.Is(err, errs.Internal) {
				t.Fatalf("Read: %v", err)
			}
		}
		l, err := j.Create(box, 1)
		if errors.Is(err, errs.Internal) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if l.Exit() == nil {
			write(t, l, sandbox.Stdout, "after")
			if err := l.Finish(exited(0)); err != nil {
				t.Fatal(err)
			}
		}
		c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: -1, Stderr: -1, Rich: -1})
		if err != nil || c.Exit == nil {
			t.Fatalf("Collect after reopening: %+v, %v", c, err)
		}
	})
}

// TestEverythingAtOnce runs writers, readers, followers, pruning and a removal
// against each other under a small cap.
func TestEverythingAtOnce(t *testing.T) {
	j := openDir(t, t.TempDir(), Limits{PerExec: 100_000, PerSandbox: 400_000})
	box := sandbox.NewUID()
	allowed := func(err error) bool { return err == nil || errors.Is(err, errs.NotFound) }
	var wg sync.WaitGroup
	for w := range int64(8) {
		wg.Go(func() {
			for i := range int64(20) {
				seq := w + 8*i + 1
				l, err := j.Create(box, seq)
				if err != nil {
					t.Errorf("Create: %v", err)
					return
				}
				var readers sync.WaitGroup
				for _, follow := range []bool{true, true, false} {
					readers.Go(func() {
						var at int64
						for e, err := range j.Read(t.Context(), box, seq, 0, follow) {
							if !allowed(err) || e.Output.Offset != at && e.Exit == nil && err == nil {
								t.Errorf("Read of log %d: piece at %d, want %d, %v", seq, e.Output.Offset, at, err)
								return
							}
							at += int64(len(e.Output.Data))
						}
					})
				}
				for n := range 15 {
					if err := l.Append(sandbox.Output{Offset: l.Size(), Stream: sandbox.Stdout, Data: make([]byte, 1+1000*n)}); err != nil {
						t.Errorf("Append: %v", err)
					}
				}
				if err := l.Finish(exited(0)); err != nil {
					t.Errorf("Finish: %v", err)
				}
				readers.Wait()
				if _, err := j.Collect(t.Context(), box, max(1, seq-5), Caps{}); !allowed(err) {
					t.Errorf("Collect: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if usage, err := j.Usage(box); err != nil || usage > 400_000+8*4096 {
		t.Errorf("Usage = %d, %v", usage, err)
	}
	if err := j.Remove(box); err != nil {
		t.Fatal(err)
	}
}
