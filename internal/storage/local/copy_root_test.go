//go:build root

package local

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
	"github.com/cubbyhq/cubby/internal/storage/storagetest"
)

// A copy that would take the host below its reserve is refused, and leaves
// nothing.
func TestCopiesRespectTheReserve(t *testing.T) {
	h := newTightHost(t, 512<<20, 64<<20)
	disk := mustCreate(t, h.Disks, 300<<20)
	if err := os.WriteFile(filepath.Join(disk.Dir, "workspace", "f"), make([]byte, 160<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	syncDisk(t, disk)
	if _, _, err := h.Snapshot(t.Context(), disk.UID, "fits"); err != nil {
		t.Fatal(err)
	}
	promised := h.promised
	if _, _, err := h.Snapshot(t.Context(), disk.UID, "too-much"); !errors.Is(err, errs.Exhausted) || errs.Public(err).RetryAfter == 0 {
		t.Errorf("Snapshot = %v, want exhausted with a time to try again", err)
	}
	if _, err := h.Clone(t.Context(), storage.Source{UID: disk.UID}, sandbox.NewUID()); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Clone = %v, want exhausted", err)
	}
	if err := storagetest.Restore(t.Context(), h, disk.UID, storage.Source{UID: disk.UID, Snapshot: "fits"}); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Restore = %v, want exhausted", err)
	}
	uids, err := h.List()
	if err != nil || len(uids) != 1 || h.promised != promised {
		t.Errorf("there are disks %v, %v and %d bytes promised, want one and %d", uids, err, h.promised, promised)
	}
	if left, _ := os.ReadDir(filepath.Join(h.cfg.Dir, poolName)); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := h.RemoveSnapshot(t.Context(), disk.UID, "fits"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Clone(t.Context(), storage.Source{UID: disk.UID}, sandbox.NewUID()); err != nil {
		t.Errorf("Clone with room = %v", err)
	}
}

// The end of a shortage on the host does not let writers into a disk that is
// being copied.
func TestADiskThatIsCopiedStaysFrozen(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	thaw, err := d.hold(disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.hold(disk.UID); !errors.Is(err, errs.Unavailable) {
		t.Errorf("holding what is held = %v, want unavailable", err)
	}
	d.mu.Lock()
	d.copying[disk.UID] = true // the second hold is no part of this
	d.mu.Unlock()
	d.thaw(disk.UID)
	wrote := make(chan error, 1)
	go func() { wrote <- os.WriteFile(filepath.Join(disk.Dir, "workspace", "f"), []byte("x"), 0o644) }()
	if err := freezeDir(disk.Dir); err == nil {
		t.Error("the disk was thawed in the middle of a copy")
	}
	select {
	case err := <-wrote:
		t.Errorf("a writer ended with %v, want it to wait", err)
	default:
	}
	if paused := thaw(); paused <= 0 {
		t.Errorf("writers waited %v", paused)
	}
	if err := <-wrote; err != nil {
		t.Errorf("the writer that waited ended with %v", err)
	}
	// And while the host is nearly full no copy begins.
	if err := d.freeze(disk.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.hold(disk.UID); !errors.Is(err, errs.Exhausted) {
		t.Errorf("holding a frozen disk = %v, want exhausted", err)
	}
	d.relieve()
}

// A disk whose mount is alive only where nobody sees it is held still too.
func TestCloneOfADetachedMount(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	held, err := os.Create(filepath.Join(disk.Dir, "workspace", "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := d.unmountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := held.WriteString("written behind the mount"); err != nil {
		t.Fatal(err)
	}
	to := sandbox.NewUID()
	paused, err := d.Clone(t.Context(), storage.Source{UID: disk.UID}, to)
	if err != nil || paused <= 0 {
		t.Fatalf("Clone = %v, %v, want a pause of the writers", paused, err)
	}
	if mounted(d.dir(disk.UID)) {
		t.Error("the clone left its source mounted")
	}
	m, err := d.mountAlone(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(m.Dir, "workspace", "held")); string(b) != "written behind the mount" {
		t.Errorf("the clone has %q, %v", b, err)
	}
	if _, err := held.WriteString("!"); err != nil {
		t.Errorf("writing after the copy = %v", err)
	}
}

// Whoever still writes where nobody sees it would lose all that: its image has
// no name any more after a restore.
func TestRestoreOfADetachedMount(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	if _, _, err := d.Snapshot(t.Context(), disk.UID, "before"); err != nil {
		t.Fatal(err)
	}
	held, err := os.Create(filepath.Join(disk.Dir, "workspace", "held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := d.unmountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	d.startWait = time.Second
	if err := storagetest.Restore(t.Context(), d, disk.UID, storage.Source{UID: disk.UID, Snapshot: "before"}); !errors.Is(err, errs.Conflict) {
		t.Errorf("Restore = %v, want a conflict", err)
	}
	if _, err := held.WriteString("kept"); err != nil {
		t.Fatal(err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := d.mountAlone(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(m.Dir, "workspace", "held")); string(b) != "kept" {
		t.Errorf("the disk has %q, %v", b, err)
	}
	if err := storagetest.Restore(t.Context(), d, disk.UID, storage.Source{UID: disk.UID, Snapshot: "before"}); err != nil {
		t.Errorf("Restore after its use = %v", err)
	}
}

// A container that starts meanwhile has a copy of the mount for a moment, in which it
// writes nothing: a restore waits for that and does not break off.
func TestARestoreWaitsForAStartThatHasCopiedTheMount(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	if _, _, err := d.Snapshot(t.Context(), disk.UID, "before"); err != nil {
		t.Fatal(err)
	}
	start := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 1")
	out, err := start.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start.Start(); err != nil {
		t.Fatal(err)
	}
	defer start.Wait()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := d.unmountAlone(t.Context(), disk.UID); err != nil {
		t.Fatal(err)
	}
	if err := storagetest.Restore(t.Context(), d, disk.UID, storage.Source{UID: disk.UID, Snapshot: "before"}); err != nil {
		t.Errorf("Restore = %v", err)
	}
}

// A process that has no more descriptors does not leave a disk frozen.
func TestACopyEndsWithoutDescriptors(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	thaw, err := d.hold(disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 1
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	thaw()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := freezeDir(disk.Dir); err != nil {
		t.Errorf("a disk that was copied cannot be frozen again: %v", err)
	}
	thawDir(disk.Dir)
}

// A removal that broke off and is repeated gives back all that was promised.
func TestARepeatedRemoveGivesBackWhatWasPromised(t *testing.T) {
	d := plainDisks(t, Config{})
	uid := sandbox.NewUID()
	if err := d.Create(t.Context(), uid, storage.Own, 32<<20); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Snapshot(t.Context(), uid, "first"); err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(d.mnt(uid), "workspace")
	if err := unix.Mount("tmpfs", busy, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	_, err := d.Remove(t.Context(), uid)
	if unmountErr := unix.Unmount(busy, 0); unmountErr != nil {
		t.Fatal(unmountErr)
	}
	if err == nil {
		t.Fatal("the removal of what is busy did not fail")
	}
	if _, err := d.Remove(t.Context(), uid); err != nil {
		t.Fatal(err)
	}
	if d.promised != 0 {
		t.Errorf("%d bytes stay promised after all is removed", d.promised)
	}
}

// The copy of a disk that is written to is whole by itself: nothing has to be
// replayed, and the checker finds no fault in it.
func TestACloneNeedsNoRecovery(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			name := filepath.Join(disk.Dir, "workspace", strconv.Itoa(n%50))
			err := errors.Join(os.RemoveAll(name), os.Mkdir(name, 0o755), os.WriteFile(filepath.Join(name, "f"), make([]byte, n%9000), 0o644))
			if n == 100 {
				close(begun)
			}
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err != nil {
				stopped <- err
				return
			}
		}
	}()
	<-begun
	to := sandbox.NewUID()
	_, cloneErr := d.Clone(t.Context(), storage.Source{UID: disk.UID}, to)
	close(stop)
	if err := errors.Join(cloneErr, <-stopped); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(d.image(to))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, superSize)
	if _, err := f.ReadAt(b, superAt); err != nil {
		t.Fatal(err)
	}
	const needsRecovery = 0x4
	if features := binary.LittleEndian.Uint32(b[superIncompatible:]); features&needsRecovery != 0 {
		t.Errorf("the journal of the copy has to be replayed: %#x", features)
	}
	if out, err := exec.Command(program("e2fsck"), "-f", "-n", d.image(to)).CombinedOutput(); err != nil {
		t.Errorf("e2fsck = %v: %s", err, out)
	}
}
