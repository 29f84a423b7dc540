package seccomp

import (
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// decide runs the compiled filter on one call. The interpreter loads in
// network byte order, the kernel in its own.
func decide(t *testing.T, arch, call uint32, args ...uint64) uint32 {
	t.Helper()
	var program []bpf.Instruction
	for _, f := range native().compile() {
		program = append(program, bpf.RawInstruction{Op: f.Code, Jt: f.Jt, Jf: f.Jf, K: f.K}.Disassemble())
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetCall:], call)
	binary.BigEndian.PutUint32(data[offsetArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offsetArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offsetArgs+8*i+4:], uint32(a>>32))
	}
	n, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func TestSeccompDecides(t *testing.T) {
	eperm, enosys := fail(unix.EPERM), fail(unix.ENOSYS)
	tests := []struct {
		name string
		call uint32
		args []uint64
		want uint32
	}{
		{"read", unix.SYS_READ, nil, allow},
		{"execve", unix.SYS_EXECVE, nil, allow},
		{"mount", unix.SYS_MOUNT, nil, eperm},
		{"unshare", unix.SYS_UNSHARE, nil, eperm},
		{"setns", unix.SYS_SETNS, nil, eperm},
		{"bpf", unix.SYS_BPF, nil, eperm},
		{"keyctl", unix.SYS_KEYCTL, nil, eperm},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil, enosys},
		{"a call of the future", 9999, nil, enosys},
		{"clone of a thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND}, allow},
		{"clone of a process", unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allow},
		{"clone with a user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, eperm},
		{"clone with a network namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, eperm},
		{"clone3", unix.SYS_CLONE3, nil, enosys},
		{"socket unix", unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, allow},
		{"socket inet6", unix.SYS_SOCKET, []uint64{unix.AF_INET6}, allow},
		{"socket vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, fail(unix.EAFNOSUPPORT)},
		{"socket alg", unix.SYS_SOCKET, []uint64{unix.AF_ALG}, fail(unix.EAFNOSUPPORT)},
		{"socket with a dirty upper half", unix.SYS_SOCKET, []uint64{1<<32 | unix.AF_VSOCK}, fail(unix.EAFNOSUPPORT)},
		{"ioctl of a terminal", unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, allow},
		{"ioctl TIOCSTI", unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, eperm},
		{"ioctl TIOCSTI with a dirty upper half", unix.SYS_IOCTL, []uint64{0, 1<<32 | unix.TIOCSTI}, eperm},
		{"personality query", unix.SYS_PERSONALITY, []uint64{0xffffffff}, allow},
		{"personality READ_IMPLIES_EXEC", unix.SYS_PERSONALITY, []uint64{0x0400000}, eperm},
	}
	for _, tt := range tests {
		if got := decide(t, native().arch, tt.call, tt.args...); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
	}
	if got := decide(t, 0x40000003, 11); got != enosys {
		t.Errorf("execve of another architecture: %#x, want %#x", got, enosys)
	}
	if runtime.GOARCH == "amd64" {
		if got := decide(t, native().arch, 0x40000000|unix.SYS_READ); got != enosys {
			t.Errorf("read of x32: %#x, want %#x", got, enosys)
		}
	}
}

// Every call of the lists is decided as the list says: the search tree and the
// lists cannot differ.
func TestSeccompIsTotal(t *testing.T) {
	ruled := make(map[string]bool)
	for _, r := range rules {
		ruled[r.call] = true
	}
	allowed, denied := strings.Fields(allowedCalls), strings.Fields(deniedCalls)
	for name, n := range numbers() {
		want := fail(unix.ENOSYS)
		switch {
		case ruled[name]:
			continue
		case slices.Contains(allowed, name):
			want = allow
		case slices.Contains(denied, name):
			want = fail(unix.EPERM)
		}
		if got := decide(t, native().arch, n); got != want {
			t.Errorf("%s: %#x, want %#x", name, got, want)
		}
	}
	for _, name := range allowed {
		if slices.Contains(denied, name) || ruled[name] {
			t.Errorf("%s is allowed and something else", name)
		}
	}
	if n := len(native().compile()); n > unix.BPF_MAXINSNS {
		t.Errorf("the filter has %d instructions, the kernel takes %d", n, unix.BPF_MAXINSNS)
	}
}
