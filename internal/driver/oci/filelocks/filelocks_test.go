package filelocks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain is also the program that holds locks.
func TestMain(m *testing.M) {
	if how := os.Getenv("HOLD_LOCKS"); how != "" {
		holdLocks(how)
	}
	goleak.VerifyTestMain(m)
}

// holdLocks takes locks and keeps them until its input ends.
func holdLocks(how string) {
	var n, size int
	if _, err := fmt.Sscan(how, &n, &size); err != nil {
		panic(err)
	}
	files, _ := strconv.Atoi(os.Getenv("LOCKED_FILES"))
	for range max(1, files) {
		if os.Getenv("HIDE_LOCKS") != "" {
			hide(n, size)
		} else {
			take(n, size)
		}
	}
	fmt.Println("holds")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// take takes n locks, each of size bytes, a byte apart.
func take(n, size int) {
	file, err := os.CreateTemp("", "locks")
	if err != nil {
		panic(err)
	}
	_ = os.Remove(file.Name())
	fd := int(file.Fd())
	for i := range n {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i * (size + 1)), Len: int64(size)}
		if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock); err != nil {
			panic(err)
		}
	}
	kept = append(kept, file)
}

var kept []*os.File

// hide lets a process that shares the table of open files take the locks and
// end: they are those of a process that is not there any more.
func hide(n, size int) {
	file, err := os.CreateTemp("", "locks")
	if err != nil {
		panic(err)
	}
	_ = os.Remove(file.Name())
	kept = append(kept, file)
	fd := file.Fd()
	child, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_FILES|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		panic(errno)
	}
	if child == 0 {
		// Of this program's runtime nothing is left here: only system calls.
		for i := range n {
			lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i * (size + 1)), Len: int64(size)}
			if _, _, errno := unix.RawSyscall(unix.SYS_FCNTL, fd, unix.F_SETLK, uintptr(unsafe.Pointer(&lock))); errno != 0 {
				unix.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
			}
		}
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(int(child), &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		panic(fmt.Sprint("the child that takes the locks: ", status, err))
	}
}

// holder starts a process that holds n locks.
func holder(t *testing.T, n int, more ...string) int {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "HOLD_LOCKS="+strconv.Itoa(n)+" 1")
	c.Env = append(c.Env, more...)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "holds\n" {
		t.Fatal(line, err)
	}
	return c.Process.Pid
}

func watch(t *testing.T, most int, pids ...int) *Watch {
	t.Helper()
	w := New(slog.New(slog.NewTextHandler(t.Output(), nil)))
	w.most = most
	w.held = func() (int, error) { return 0, nil } // the test looks
	w.Guard("box", 0, func() ([]int, error) { return pids, nil })
	t.Cleanup(w.Close)
	return w
}

func killedPIDs(w *Watch) (pids []int) {
	for _, k := range w.Kills("box") {
		pids = append(pids, k.PID)
	}
	return pids
}

// Of a sandbox with too many locks the one that holds the most is killed, and
// the others go on.
func TestTheLargestHolderIsKilled(t *testing.T) {
	few, many := holder(t, 40), holder(t, 400)
	w := watch(t, 300, few, many)
	if !w.look(t.Context()) {
		t.Fatal("nothing was killed")
	}
	kills := w.Kills("box")
	if len(kills) != 1 || kills[0].PID != many || kills[0].Locks != 341 || kills[0].Process == "" || kills[0].At.IsZero() {
		t.Errorf("%+v, want one kill of %d for 341 locks", kills, many)
	}
}

// On a busy host a storm took a million locks while they were counted: who holds too
// many is killed as soon as that is known.
func TestNobodysLocksAreAllCounted(t *testing.T) {
	pid := holder(t, 200, "LOCKED_FILES=50")
	w := watch(t, 300, pid)
	w.look(t.Context())
	if kills := w.Kills("box"); len(kills) != 1 || kills[0].PID != pid || kills[0].Locks != 301 {
		t.Errorf("%+v, want one kill of %d after 301 of its 10,000 locks were counted", kills, pid)
	}
}

func TestWithinTheBoundNothingIsKilled(t *testing.T) {
	w := watch(t, 300, holder(t, 100), holder(t, 200))
	if w.look(t.Context()) || len(w.Kills("box")) > 0 {
		t.Errorf("%+v were killed", w.Kills("box"))
	}
}

// Many processes, none of which has many, are too many together.
func TestLocksOfManyProcessesCountTogether(t *testing.T) {
	pids := []int{holder(t, 100), holder(t, 100), holder(t, 100), holder(t, 100)}
	w := watch(t, 300, pids...)
	w.look(t.Context())
	if got := killedPIDs(w); len(got) != 3 { // 100 are left, at most 150
		t.Errorf("%v were killed, want 3", got)
	}
}

// A lock whose process has ended is found at those that share its files.
func TestLocksOfAProcessThatHasEndedAreFound(t *testing.T) {
	pid := holder(t, 400, "HIDE_LOCKS=1")
	w := watch(t, 300, pid)
	w.look(t.Context())
	if got := killedPIDs(w); len(got) != 1 || got[0] != pid {
		t.Errorf("%v were killed, want %d", got, pid)
	}
}

// The threads of this process share one table, and are not counted each.
func TestThreadsAreOneOwner(t *testing.T) {
	if owners := ownersOf(t.Context(), []int{os.Getpid(), os.Getpid()}); len(owners) != 1 || len(owners[0].pids) != 1 {
		t.Errorf("%d owners, want one", len(owners))
	}
}

// ended is the kill of a process that nobody asks about.
func ended(k Kill) bool { return unix.Kill(k.PID, unix.SIGKILL) == nil }

// Who waits for a process that is killed asks for the reason at once, and was told
// that there is none.
func TestAKillIsKnownWhenItsProcessEnds(t *testing.T) {
	var pids []int
	for range 30 {
		pids = append(pids, holder(t, 40))
	}
	w := watch(t, 40, pids...)
	var all sync.WaitGroup
	for _, pid := range pids[1:] { // 20 locks may be left: all are killed but one, whichever
		all.Go(func() {
			// It stays for its parent to wait for.
			for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
			}
			if !slices.Contains(killedPIDs(w), pid) {
				t.Errorf("%d ended before its kill was known", pid)
			}
		})
	}
	w.look(t.Context())
	all.Wait()
}

func TestTheAgentIsSpared(t *testing.T) {
	pid := holder(t, 400)
	if kills, _ := enforce(t.Context(), []int{pid}, pid, 300, nil, ended); len(kills) > 0 {
		t.Errorf("%+v", kills)
	}
}

// To give tens of thousands of locks back takes a process that was killed longer than
// it is until the next look, which killed it again.
func TestADyingHolderIsNotKilledAgain(t *testing.T) {
	pid := holder(t, 400)
	before := []Kill{{PID: pid, started: started(pid)}}
	if kills, dying := enforce(t.Context(), []int{pid}, 0, 300, before, ended); len(kills) > 0 || !dying {
		t.Errorf("%+v, dying %v", kills, dying)
	}
	// Another one with its id is another one.
	before[0].started++
	if kills, dying := enforce(t.Context(), []int{pid}, 0, 300, before, ended); len(kills) != 1 || dying {
		t.Errorf("%+v, dying %v, want a kill", kills, dying)
	}
}

func TestForgottenSandboxesAreLeftAlone(t *testing.T) {
	w := watch(t, 1, holder(t, 10))
	w.Forget("box")
	if w.look(t.Context()) {
		t.Error("it was killed")
	}
}

func TestALookEndsWithTheWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := watch(t, 1, holder(t, 10))
	if w.look(ctx) {
		t.Error("it was killed")
	}
}

func TestHeld(t *testing.T) {
	dir := t.TempDir()
	locks := filepath.Join(dir, "locks")
	if err := os.WriteFile(locks, []byte(strings.Repeat("1: POSIX\n", 7)), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := heldIn(filepath.Join(dir, "none"), locks); n != 7 || err != nil {
		t.Errorf("without the cache %d, %v, want 7", n, err)
	}
	for name, text := range map[string]string{"slabs": "12 N0=12\n", "objs_per_slab": "21\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := heldIn(dir, locks); n != 12*21 || err != nil {
		t.Errorf("%d, %v, want %d", n, err, 12*21)
	}
}

// After a look in vain the alarm is higher, and falls with the number.
func TestAlarmFallsWithTheNumber(t *testing.T) {
	for _, c := range []struct{ alarm, held, want int }{
		{100, 5, 100}, {300, 200, 300}, {300, 100, 150}, {300, 10, 100}, {300, 400, 300},
	} {
		if got := next(c.alarm, c.held, 100); got != c.want {
			t.Errorf("next(%d, %d) = %d, want %d", c.alarm, c.held, got, c.want)
		}
	}
}

// BenchmarkHeld is what the watch costs as long as nobody has many locks.
func BenchmarkHeld(b *testing.B) {
	for b.Loop() {
		if _, err := Held(); err != nil {
			b.Fatal(err)
		}
	}
}
