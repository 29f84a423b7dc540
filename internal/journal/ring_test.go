package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const ringKeep = minRing

// counted is output whose every byte tells its offset.
func counted(offset int64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		at := offset + int64(i)
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
	return b
}

func createRing(t testing.TB, j *Journals, box sandbox.UID, seq int64) *Log {
	t.Helper()
	l, err := j.CreateRing(box, seq, ringKeep)
	if err != nil {
		t.Fatalf("CreateRing: %v", err)
	}
	return l
}

func writePattern(t testing.TB, l *Log, n int) {
	t.Helper()
	o := sandbox.Output{Offset: l.Size(), Stream: sandbox.Stdout, Time: when, Data: counted(l.Size(), n)}
	if err := l.Append(o); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

// readPattern reads what a ring has from an offset on and returns where that
// begins and ends.
func readPattern(t testing.TB, j *Journals, box sandbox.UID, seq, after int64) (first, end int64, exit *sandbox.Exit) {
	t.Helper()
	first, end = -1, -1
	for e, err := range j.Read(t.Context(), box, seq, after, false) {
		if err != nil {
			t.Fatalf("Read from %d: %v", after, err)
		}
		if e.Exit != nil {
			exit = e.Exit
			continue
		}
		o := e.Output
		if first < 0 {
			first, end = o.Offset, o.Offset
		}
		if o.Offset != end || !bytes.Equal(o.Data, counted(o.Offset, len(o.Data))) {
			t.Fatalf("Read from %d: a piece at %d with %d bytes, want the output at %d", after, o.Offset, len(o.Data), end)
		}
		end += int64(len(o.Data))
	}
	return first, end, exit
}

func blocks(t testing.TB, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestRingKeepsTheNewest(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	// Neither cap is for rings.
	j := openDir(t, dir, Limits{PerExec: 100, PerSandbox: 100 << 10})
	l := createRing(t, j, box, 1)
	const total = 100 * ringKeep
	for l.Size() < total {
		writePattern(t, l, 10_000)
	}
	size := l.Size()
	for _, after := range []int64{0, size / 2} {
		first, end, _ := readPattern(t, j, box, 1, after)
		if end != size || size-first < ringKeep/2 || size-first > ringKeep {
			t.Errorf("reading from %d gave %d to %d of %d, want about the newest %d", after, first, end, size, ringKeep)
		}
	}
	if first, end, _ := readPattern(t, j, box, 1, size-7); first != size-7 || end != size {
		t.Errorf("reading the last 7 bytes gave %d to %d of %d", first, end, size)
	}
	first, end, err := j.Span(box, 1)
	if err != nil || end != size || size-first > ringKeep {
		t.Errorf("Span = %d, %d, %v; the end is %d", first, end, err, size)
	}
	path := filepath.Join(dir, string(box), "1.log")
	if got := blocks(t, path); got > 2*ringKeep {
		t.Errorf("%d bytes on disk for a ring of %d", got, ringKeep)
	}
	usage, err := j.Usage(box)
	if err != nil || usage > 2*ringKeep || usage < ringKeep/2 {
		t.Errorf("Usage = %d, %v", usage, err)
	}

	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	check := func(state string) {
		t.Helper()
		gotFirst, gotEnd, exit := readPattern(t, j, box, 1, 0)
		if gotFirst != first || gotEnd != size || exit == nil || exit.StdoutCut != first {
			t.Errorf("%s: %d to %d, exit %+v; want %d to %d, and as much cut as is missing", state, gotFirst, gotEnd, exit, first, size)
		}
		if f, e, err := j.Span(box, 1); f != first || e != size || err != nil {
			t.Errorf("%s: Span = %d, %d, %v", state, f, e, err)
		}
		c, err := j.Collect(t.Context(), box, 1, Caps{Stdout: -1, Stderr: -1, Rich: -1})
		if err != nil || int64(len(c.Stdout)) != size-first || c.StdoutCut != first {
			t.Errorf("%s: Collect = %d bytes, %d cut, %v", state, len(c.Stdout), c.StdoutCut, err)
		}
	}
	check("finished")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = openDir(t, dir, Limits{})
	if got, err := j.Usage(box); err != nil || got > 2*ringKeep {
		t.Errorf("Usage after reopening = %d, %v", got, err)
	}
	check("reopened")
	if exit := createRing(t, j, box, 1).Exit(); exit == nil || *exit.Code != 0 {
		t.Errorf("reopened, Exit = %+v", exit)
	}
}

// TestRingFollower reads while the ring drops what is being read: everything
// that comes is right, in order, and up to the end.
func TestRingFollower(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{})
	l := createRing(t, j, box, 1)
	writePattern(t, l, 1000)
	const total = 30 * ringKeep
	var readers sync.WaitGroup
	for slow := range 3 {
		readers.Go(func() {
			var at, gaps int64
			pause := make([]byte, slow*50_000)
			for e, err := range j.Read(t.Context(), box, 1, 0, true) {
				if err != nil {
					t.Errorf("reader %d: %v at %d", slow, err, at)
					return
				}
				if e.Exit != nil {
					if at != l.Size() {
						t.Errorf("reader %d ended at %d of %d", slow, at, l.Size())
					}
					t.Logf("reader %d missed %d bytes", slow, gaps)
					return
				}
				o := e.Output
				if o.Offset < at || !bytes.Equal(o.Data, counted(o.Offset, len(o.Data))) {
					t.Errorf("reader %d: a wrong piece at %d after %d", slow, o.Offset, at)
					return
				}
				gaps += o.Offset - at
				at = o.Offset + int64(len(o.Data))
				for i := range pause { // holds this one up, and nobody else
					pause[i] = byte(i)
				}
			}
			t.Errorf("reader %d: no exit", slow)
		})
	}
	for l.Size() < total {
		writePattern(t, l, 30_000)
	}
	if err := l.Finish(exited(0)); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}

// TestRingModel tears rings at random as crashes do: what is left is a whole
// piece of the output, and appending goes on behind it.
func TestRingModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		dir, box := t.TempDir(), sandbox.NewUID()
		j := openDir(t, dir, Limits{})
		l := createRing(t, j, box, 1)
		path := filepath.Join(dir, string(box), "1.log")
		for step := range 50 {
			if rng.IntN(6) > 0 {
				writePattern(t, l, 1+rng.IntN([]int{10, 1000, 100_000}[rng.IntN(3)]))
				continue
			}
			before := l.Size()
			oldest := l.oldest()
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(2) == 0 { // the file loses its end, but not its beginning
				info, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				cut := rng.Int64N(max(0, min(info.Size()-oldest.position, 50_000)) + 1)
				if err := os.Truncate(path, info.Size()-cut); err != nil {
					t.Fatal(err)
				}
			}
			j = openDir(t, dir, Limits{})
			l = createRing(t, j, box, 1)
			if got := l.oldest(); got != oldest || l.Size() > before || l.Size() < oldest.offset {
				t.Fatalf("seed %d, step %d: reopened from %+v to %d, want from %+v to at most %d", seed, step, got, l.Size(), oldest, before)
			}
			if first, end, _ := readPattern(t, j, box, 1, 0); first >= 0 && (first != oldest.offset || end != l.Size()) {
				t.Fatalf("seed %d, step %d: read %d to %d, want %d to %d", seed, step, first, end, oldest.offset, l.Size())
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRingDiesBetweenSlotAndHole: a daemon that wrote where the ring begins
// and died before it freed what is older, or while it wrote the slot.
func TestRingDiesBetweenSlotAndHole(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	j := openDir(t, dir, Limits{})
	l := createRing(t, j, box, 1)
	for l.oldest().offset == 0 {
		writePattern(t, l, 20_000)
	}
	size, oldest, next := l.Size(), l.oldest(), l.nextSlot
	index := l.index
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, string(box), "1.log")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reopen := func(want mark) {
		t.Helper()
		j := openDir(t, dir, Limits{})
		l := createRing(t, j, box, 1)
		if got := l.oldest(); got != want || l.Size() != size {
			t.Errorf("reopened from %+v to %d, want from %+v to %d", got, l.Size(), want, size)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	torn := slot{index[1], ringKeep}.encode()
	if _, err := f.WriteAt(torn[:12], slotPositions[next]); err != nil {
		t.Fatal(err)
	}
	reopen(oldest)
	if _, err := f.WriteAt(torn, slotPositions[next]); err != nil {
		t.Fatal(err)
	}
	reopen(index[1])

	// Without any slot there is no telling where the records are.
	for _, at := range slotPositions {
		if _, err := f.WriteAt(make([]byte, slotSize), at); err != nil {
			t.Fatal(err)
		}
	}
	j = openDir(t, dir, Limits{})
	if _, err := j.CreateRing(box, 1, ringKeep); !errors.Is(err, errs.Internal) {
		t.Errorf("CreateRing of a damaged one = %v", err)
	}
	for _, err := range j.Read(t.Context(), box, 1, 0, false) {
		if !errors.Is(err, errs.Internal) {
			t.Errorf("Read of a damaged one = %v", err)
		}
	}
}
