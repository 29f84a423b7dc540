//go:build root

package workspace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestMain is also the daemon that the tests below kill: with the variable
// set, it makes, mounts, unmounts and removes disks until it is killed.
func TestMain(m *testing.M) {
	dir := os.Getenv("CUBBY_TEST_VICTIM")
	if dir == "" {
		os.Exit(m.Run())
	}
	fmt.Println(victim(dir))
	os.Exit(1)
}

func victim(dir string) error {
	d, err := New(Config{Dir: dir, Reserve: 1 << 20, Pool: 1, PoolBytes: MinBytes})
	if err != nil {
		return err
	}
	go func() { _ = d.Run(context.Background()) }()
	fmt.Println("up")
	for ctx := context.Background(); ; {
		uid := sandbox.NewUID()
		for _, step := range []func() error{
			func() error { _, err := d.Create(ctx, uid, MinBytes); return err },
			func() error { return d.Unmount(ctx, uid) },
			func() error { _, err := d.Mount(ctx, uid); return err },
			func() error { return d.freeze(uid) },
			func() error { _, err := d.Remove(ctx, uid); return err },
		} {
			if err := step(); err != nil {
				return err
			}
		}
	}
}

func TestKilledAnywhereLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	traces := 0
	for round := range 40 {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "CUBBY_TEST_VICTIM="+dir)
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
		time.Sleep(time.Duration(round) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if line, _ := lines.ReadString('\n'); line != "" {
			t.Fatalf("round %d: before it was killed the victim said %q", round, line)
		}
		_ = cmd.Wait()

		d, err := New(Config{Dir: dir, Reserve: 1 << 20})
		if err != nil {
			t.Fatalf("round %d: New after a kill = %v", round, err)
		}
		uids, err := d.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, uid := range uids {
			traces++
			// What was left is either a whole disk or only something to remove.
			disk, err := d.Mount(t.Context(), uid)
			if err == nil {
				err = os.WriteFile(filepath.Join(disk.Dir, "workspace", "x"), []byte("x"), 0o644)
			}
			if err != nil && !errors.Is(err, errs.NotFound) {
				t.Errorf("round %d: a disk that was left is unusable: %v", round, err)
			}
			if _, err := d.Remove(t.Context(), uid); err != nil {
				t.Errorf("round %d: Remove = %v", round, err)
			}
		}
		d.closePool()
		nothingBelow(t, dir)
		entries, err := os.ReadDir(filepath.Join(dir, poolName))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), unfinished) {
				t.Errorf("round %d: left unfinished: %s", round, e.Name())
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d of 40 kills left a disk behind, which Remove took away", traces)
}

// A process that still works on a disk keeps it from being deleted, not from
// being asked again.
func TestRemoveOfADiskInUse(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, MinBytes)
	held, err := os.Create(filepath.Join(disk.Dir, "workspace", "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := d.Remove(ctx, disk.UID); err == nil {
		t.Error("Remove of a disk with an open file = nil")
	}
	if uids, _ := d.List(); len(uids) != 1 {
		t.Errorf("List = %v, want the disk", uids)
	}
	held.Close()
	if _, err := d.Remove(t.Context(), disk.UID); err != nil {
		t.Errorf("Remove after it was closed = %v", err)
	}
}

func TestADamagedImageIsAnErrorNotAHang(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, MinBytes)
	if err := d.Unmount(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(d.image(disk.UID), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 64<<10), 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := d.Mount(t.Context(), disk.UID); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Mount of a damaged image = %v, want unavailable", err)
	}
	nothingBelow(t, d.cfg.Dir)
}
