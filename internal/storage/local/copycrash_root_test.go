//go:build root

package local

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/storage/storagetest"
)

// busy is a daemon that copies disks until it is killed.
func busy(dir string, plain bool) error {
	d, err := New(Config{Dir: dir, Reserve: 1 << 20, Plain: plain})
	if err != nil {
		return err
	}
	fmt.Println("up")
	return storagetest.Busy(context.Background(), d)
}

func TestKilledInTheMiddleOfACopy(t *testing.T) {
	for name, plain := range map[string]bool{"loop devices": false, "plain directories": true} {
		t.Run(name, func(t *testing.T) { killBusy(t, plain) })
	}
}

func killBusy(t *testing.T, plain bool) {
	dir := t.TempDir()
	var all storagetest.Left
	const rounds = 12
	// More where the machine is too slow for a snapshot in that time.
	for round := 0; round < rounds || all.Snapshots == 0 && round < 10*rounds; round++ {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "CUBBY_TEST_BUSY="+dir)
		if plain {
			cmd.Env = append(cmd.Env, "CUBBY_TEST_PLAIN=1")
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "up\n" {
			t.Fatalf("round %d: the victim says %q, %v", round, line, err)
		}
		// The moment is what varies from round to round.
		time.Sleep(time.Duration(round) * 31 * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if line, _ := lines.ReadString('\n'); line != "" {
			t.Fatalf("round %d: before it was killed the victim said %q", round, line)
		}
		_ = cmd.Wait()

		d, err := New(Config{Dir: dir, Reserve: 1 << 20, Plain: plain})
		if err != nil {
			t.Fatalf("round %d: New after a kill = %v", round, err)
		}
		entries, err := os.ReadDir(filepath.Join(dir, poolName))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), unfinished) {
				t.Errorf("round %d: left unfinished: %s", round, e.Name())
			}
		}
		left := storagetest.CheckLeft(t, d)
		all.Disks += left.Disks
		all.Snapshots += left.Snapshots
		nothingBelow(t, dir)
		if d.promised != 0 {
			t.Errorf("round %d: %d bytes stay promised after all is removed", round, d.promised)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("kills left %d disks and %d snapshots, all whole", all.Disks, all.Snapshots)
	if all.Disks == 0 || all.Snapshots == 0 {
		t.Error("no kill left a disk and a snapshot to look at")
	}
}
