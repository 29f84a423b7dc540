package proc

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// verdict runs the filter on one call. The interpreter reads its input in
// network byte order, the kernel in its own.
func verdict(t *testing.T, program []unix.SockFilter, arch, call uint32, args ...uint64) uint32 {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, i := range program {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	decoded, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter does not disassemble")
	}
	// The interpreter returns a length and cuts it to the input's; what is
	// returned is told apart by numbers that fit.
	for i, in := range decoded {
		if r, ok := in.(bpf.RetConstant); ok {
			decoded[i] = bpf.RetConstant{Val: 1}
			if r.Val != unix.SECCOMP_RET_ALLOW {
				decoded[i] = bpf.RetConstant{Val: 2}
			}
		}
	}
	vm, err := bpf.NewVM(decoded)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[dataCall:], call)
	binary.BigEndian.PutUint32(data[dataArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[dataArgs+8*i:], uint32(a))
	}
	n, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func TestShield(t *testing.T) {
	const last, minus = 9, 1<<32 - 1
	arch := uint32(unix.AUDIT_ARCH_X86_64)
	program := shieldProgram(arch, last)
	tests := []struct {
		name    string
		call    uint32
		args    []uint64
		refused bool
	}{
		{"kill -9 1", unix.SYS_KILL, []uint64{1, 9}, true},
		{"kill -STOP of a thread", unix.SYS_KILL, []uint64{last, 19}, true},
		{"kill -34 1", unix.SYS_KILL, []uint64{1, 34}, true},
		{"kill -TERM 1", unix.SYS_KILL, []uint64{1, 15}, false},
		{"kill -9 of a command", unix.SYS_KILL, []uint64{last + 1, 9}, false},
		{"kill -9 -1", unix.SYS_KILL, []uint64{minus, 9}, false},
		{"kill -9 0", unix.SYS_KILL, []uint64{0, 9}, false},
		{"tkill", unix.SYS_TKILL, []uint64{2, 9}, true},
		{"tgkill", unix.SYS_TGKILL, []uint64{1, 77, 9}, true},
		{"tgkill that Go's scheduler sends", unix.SYS_TGKILL, []uint64{1, 3, 23}, false},
		{"queued signal", unix.SYS_RT_SIGQUEUEINFO, []uint64{1, 9}, true},
		{"queued signal to a thread", unix.SYS_RT_TGSIGQUEUEINFO, []uint64{1, 3, 9}, true},
		{"pidfd", unix.SYS_PIDFD_OPEN, []uint64{1, 0}, true},
		{"pidfd of a command", unix.SYS_PIDFD_OPEN, []uint64{100, 0}, false},
		{"limits of the agent", unix.SYS_PRLIMIT64, []uint64{1, 7}, true},
		{"own limits", unix.SYS_PRLIMIT64, []uint64{0, 7}, false},
		{"trace the agent", unix.SYS_PTRACE, []uint64{16, 1}, true},
		{"be traced", unix.SYS_PTRACE, []uint64{0, 0}, false},
		{"read the agent", unix.SYS_PROCESS_VM_READV, []uint64{1}, true},
		{"write the agent", unix.SYS_PROCESS_VM_WRITEV, []uint64{1}, true},
		{"read a file", unix.SYS_READ, []uint64{1, 9}, false},
	}
	for _, tt := range tests {
		if refused := verdict(t, program, arch, tt.call, tt.args...) == 2; refused != tt.refused {
			t.Errorf("%s: refused = %v, want %v", tt.name, refused, tt.refused)
		}
	}
	if verdict(t, program, arch+1, unix.SYS_KILL, 1, 9) == 2 {
		t.Error("numbers of another architecture mean something else")
	}
}
