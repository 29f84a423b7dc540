package journal

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// killDir makes this test binary the writer that TestKilledWriter kills.
const (
	killDir = "CUBBY_TEST_KILL_DIR"
	killBox = "CUBBY_TEST_KILL_BOX"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		if err := writeUntilKilled(dir, sandbox.UID(os.Getenv(killBox))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

// pattern is what the writer writes: each byte follows from its offset.
func pattern(offset int64, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte((offset + int64(i)) * 7 / 5)
	}
	return b
}

// writeUntilKilled appends and prints the size after each append.
func writeUntilKilled(dir string, box sandbox.UID) error {
	j, err := Open(dir, Limits{})
	if err != nil {
		return err
	}
	l, err := j.Create(box, 1)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		at := l.Size()
		n := []int{1, 200, 5000, 100_000}[i%4]
		if err := l.Append(sandbox.Output{Offset: at, Stream: sandbox.Stream(1 + i%2), Data: pattern(at, n)}); err != nil {
			return err
		}
		fmt.Println(l.Size())
	}
}

// TestKilledWriter kills a writing process again and again: what was appended
// is there, and the next process goes on behind it.
func TestKilledWriter(t *testing.T) {
	dir, box := t.TempDir(), sandbox.NewUID()
	for round := range 5 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), killDir+"="+dir, killBox+"="+string(box))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acknowledged int64
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if acknowledged, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
				t.Fatal(err)
			}
			if n == 50*(round+1) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() > 0 {
			t.Fatalf("the writer ended by itself: %v", err)
		}
		j := openDir(t, dir, Limits{})
		l := create(t, j, box, 1)
		if l.Size() < acknowledged {
			t.Fatalf("round %d: %d bytes after the kill, %d were acknowledged", round, l.Size(), acknowledged)
		}
		var at int64
		for e, err := range j.Read(t.Context(), box, 1, 0, false) {
			if err != nil || e.Output.Offset != at || !bytes.Equal(e.Output.Data, pattern(at, len(e.Output.Data))) {
				t.Fatalf("round %d: a wrong piece at %d: %v", round, at, err)
			}
			at += int64(len(e.Output.Data))
		}
		if at != l.Size() {
			t.Fatalf("round %d: read %d bytes of %d", round, at, l.Size())
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
