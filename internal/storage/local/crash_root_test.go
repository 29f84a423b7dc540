//go:build root

package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// TestMain runs the tests in a mount namespace of their own: every sandbox that
// starts elsewhere on the machine begins with a copy of the mounts it finds,
// and would hold those of these tests for a while.
//
// It is also the daemon that tests kill: with a variable set, it works on disks
// until it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("CUBBY_TEST_VICTIM"); dir != "" {
		fmt.Println(victim(dir))
		os.Exit(1)
	}
	if dir := os.Getenv("CUBBY_TEST_BUSY"); dir != "" {
		fmt.Println(busy(dir, os.Getenv("CUBBY_TEST_PLAIN") != ""))
		os.Exit(1)
	}
	const inside = "CUBBY_TEST_NAMESPACE"
	if os.Getenv(inside) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "run the tests in a mount namespace:", err)
		os.Exit(1)
	}
}

func victim(dir string) error {
	d, err := New(Config{Dir: dir, Reserve: 1 << 20, Pool: 1, PoolBytes: storage.MinBytes})
	if err != nil {
		return err
	}
	go func() { _ = d.Run(context.Background()) }()
	fmt.Println("up")
	for ctx := context.Background(); ; {
		uid := sandbox.NewUID()
		for _, step := range []func() error{
			func() error { _, err := d.createAlone(ctx, uid, storage.MinBytes); return err },
			func() error { return d.unmountAlone(ctx, uid) },
			func() error { _, err := d.mountAlone(ctx, uid); return err },
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
			disk, err := d.mountAlone(t.Context(), uid)
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

// A process that still has a file of the disk open does not keep the disk: it
// gets errors, the host gets its space, and the device goes when it goes.
func TestRemoveOfADiskInUse(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 64<<20)
	held, err := os.Create(filepath.Join(disk.Dir, "workspace", "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, err := held.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	image, err := os.Open(d.image(disk.UID))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if _, err := d.Remove(t.Context(), disk.UID); err != nil {
		t.Fatalf("Remove of a disk with an open file = %v", err)
	}
	if _, err := held.Write([]byte("x")); !errors.Is(err, unix.EIO) {
		t.Errorf("writing to a removed disk = %v, want an I/O error", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(image.Fd()), &st); err != nil || st.Nlink != 0 || st.Blocks > 2048 {
		t.Errorf("the image has %d names and takes %d bytes, %v, want none and little", st.Nlink, st.Blocks*512, err)
	}
	image.Close()
	if uids, err := d.List(); err != nil || len(uids) != 1 {
		t.Errorf("List = %v, %v, want the disk while its device is there", uids, err)
	}
	held.Close()
	nothingBelow(t, d.cfg.Dir)
	if uids, err := d.List(); err != nil || len(uids) != 0 {
		t.Errorf("List = %v, %v, want none", uids, err)
	}
}

func TestADamagedImageIsAnErrorNotAHang(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, storage.MinBytes)
	if err := d.unmountAlone(t.Context(), disk.UID); err != nil {
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
	if _, err := d.mountAlone(t.Context(), disk.UID); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Mount of a damaged image = %v, want unavailable", err)
	}
	nothingBelow(t, d.cfg.Dir)
}
