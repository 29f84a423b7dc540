package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
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
