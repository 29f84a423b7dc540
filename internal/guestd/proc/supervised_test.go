package proc

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A supervisor that was killed while it was idle, and of which the agent has not
// heard yet, made the next command fail with "broken pipe".
func TestIdleSupervisorIsGone(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "supervisor")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(ours.Close(), unix.Close(pair[1])); err != nil {
		t.Fatal(err)
	}
	s := &supervisors{live: make(map[int]bool)}
	v := &supervisor{pool: s, conn: conn.(*net.UnixConn)}
	var errno syscall.Errno
	if _, err := v.run(command{path: "/bin/true", argv: []string{"true"}}, nil, false, false); err == nil || errors.As(err, &errno) {
		t.Errorf("run = %v, want an error that is not the command's", err)
	}
}

// The host is asked for trees that the agent has been killing for a while, and
// told whom to spare.
func TestUnkilledTrees(t *testing.T) {
	s := &supervisors{live: map[int]bool{7: true, 8: true}}
	v := &supervisor{pool: s, pid: 7}
	tree := &supervised{by: v, empty: make(chan struct{})}
	v.job = tree
	if trees, _ := s.unkilled(0); len(trees) != 0 {
		t.Errorf("%d trees, and nobody kills one", len(trees))
	}
	s.killing.add(tree)
	if trees, _ := s.unkilled(time.Hour); len(trees) != 0 {
		t.Errorf("%d trees before their time", len(trees))
	}
	trees, spare := s.unkilled(0)
	if !slices.Contains(trees, tree) || !slices.Equal(spare, []int64{8}) {
		t.Errorf("trees %v, spare %v; want the one that is killed and the other supervisor", trees, spare)
	}
	if s.doomed.waiting() == nil {
		t.Error("supervisors may be started meanwhile")
	}
	tree.settle()
	if trees, _ := s.unkilled(0); len(trees) != 0 || s.doomed.waiting() != nil {
		t.Error("it is still there after its end")
	}
}
