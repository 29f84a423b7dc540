package proc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// In gVisor the kernel is the sandbox's own, and so is its cgroup tree: one
// group per command holds everything that descends from it, and their parent
// bounds the number of processes. The tree is mounted, opened and unmounted
// at once: commands, which have no CAP_SYS_ADMIN, find no path to it.

// cgroupSpare is how many empty groups are kept for reuse.
const cgroupSpare = 8

// cgroups launches commands into groups of their own.
type cgroups struct {
	box   *os.Root // parent of all groups
	procs processes
	// files is RLIMIT_NOFILE of commands; 0: what the agent has.
	files   int64
	forking sync.Mutex // with files: the agent's limit is the commands' meanwhile

	mu    sync.Mutex
	made  int
	spare []*cgroup
}

// cgroup is one group's directory.
type cgroup struct {
	name   string
	dir    *os.File
	events *os.File // cgroup.events, read again and again
}

// newCgroups mounts the tree over dir for a moment and sets pids.max of the
// group that all commands live in; 0 sets none.
func newCgroups(dir string, maxPIDs, openFiles int64, procs processes) (*cgroups, error) {
	if err := unix.Mount("cubby", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return nil, os.NewSyscallError("mount cgroup2", err)
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	box := filepath.Join(dir, "box")
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+pids"), 0); err != nil {
		return nil, err
	}
	if err := os.Mkdir(box, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if maxPIDs > 0 {
		if err := os.WriteFile(filepath.Join(box, "pids.max"), strconv.AppendInt(nil, maxPIDs, 10), 0); err != nil {
			return nil, err
		}
	}
	root, err := os.OpenRoot(box)
	if err != nil {
		return nil, err
	}
	return &cgroups{box: root, procs: procs, files: openFiles}, nil
}

func (g *cgroups) take() (*cgroup, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.spare); n > 0 {
		c := g.spare[n-1]
		g.spare = g.spare[:n-1]
		return c, nil
	}
	g.made++
	name := "e" + strconv.Itoa(g.made)
	if err := g.box.Mkdir(name, 0o700); err != nil {
		return nil, err
	}
	c := &cgroup{name: name}
	var err error
	if c.dir, err = g.box.Open(name); err == nil {
		c.events, err = g.box.Open(name + "/cgroup.events")
	}
	if err != nil {
		g.remove(c)
		return nil, err
	}
	return c, nil
}

// giveBack takes an empty group.
func (g *cgroups) giveBack(c *cgroup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.spare) < cgroupSpare {
		g.spare = append(g.spare, c)
		return
	}
	g.remove(c)
}

func (g *cgroups) remove(c *cgroup) {
	if c.dir != nil {
		c.dir.Close()
	}
	if c.events != nil {
		c.events.Close()
	}
	_ = g.box.Remove(c.name)
}

func (g *cgroups) launch(c command, files []int, tty bool) (tree, error) {
	cg, err := g.take()
	if err != nil {
		return nil, err
	}
	attr := c.attributes(files, tty, false)
	attr.Sys.UseCgroupFD = true
	attr.Sys.CgroupFD = int(cg.dir.Fd())
	pid, ended, err := g.start(c, attr)
	if err != nil {
		g.giveBack(cg)
		return nil, err
	}
	return &grouped{groups: g, group: cg, main: pid, status: ended}, nil
}

// start forks with the commands' limit of open files. A limit is the whole
// process's, so the agent has it too for this moment; what it has open stays.
func (g *cgroups) start(c command, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	if g.files == 0 {
		return g.procs.start(c.path, c.argv, attr)
	}
	g.forking.Lock()
	defer g.forking.Unlock()
	var own syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &own); err != nil {
		return 0, nil, err
	}
	limit := syscall.Rlimit{Cur: uint64(g.files), Max: uint64(g.files)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, nil, err
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &own) }()
	return g.procs.start(c.path, c.argv, attr)
}

func (g *cgroups) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.spare {
		g.remove(c)
	}
	g.spare = nil
	_ = g.box.Close()
}

// grouped is the tree in one group.
type grouped struct {
	groups *cgroups
	main   int
	status <-chan syscall.WaitStatus

	mu    sync.Mutex
	group *cgroup // nil once it was seen empty: nothing can enter it then
}

func (t *grouped) pid() int                         { return t.main }
func (t *grouped) ended() <-chan syscall.WaitStatus { return t.status }

func (t *grouped) members() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.group == nil {
		return nil
	}
	procs, err := t.groups.box.ReadFile(t.group.name + "/cgroup.procs")
	if err != nil {
		return nil
	}
	var out []int
	for line := range strings.Lines(string(procs)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

func (t *grouped) alive() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.group == nil {
		return false
	}
	if !t.group.populated() {
		t.groups.giveBack(t.group)
		t.group = nil
		return false
	}
	return true
}

func (t *grouped) kill(ctx context.Context) error {
	return killUntil(ctx, t.alive, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.group != nil {
			_ = t.groups.box.WriteFile(t.group.name+"/cgroup.kill", []byte("1"), 0)
		}
	})
}

// populated reports whether a process lives in the group; when that cannot be
// read, one may.
func (c *cgroup) populated() bool {
	buf := make([]byte, 128)
	n, err := unix.Pread(int(c.events.Fd()), buf, 0)
	return err != nil || !bytes.Contains(buf[:n], []byte("populated 0"))
}
