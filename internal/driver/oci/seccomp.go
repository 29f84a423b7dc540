package oci

import (
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The seccomp filter of containers. It is compiled here, once per process, and
// handed to crun as a program: libseccomp would compile it anew for every
// start, which takes three times as long as all the rest. runc has no such
// door and gets the same rules in the form of the specification.

// rule allows one call for some arguments. A call that no check accepts fails
// with errno.
type rule struct {
	call  string
	arg   int
	mask  uint32   // of the argument's lower half; 0: all bits
	in    []uint32 // accepted values after masking…
	not   bool     // …or refused ones
	errno unix.Errno
}

// namespaceFlags are the flags of clone that make namespaces.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

var rules = []rule{
	{call: "clone", arg: 0, mask: namespaceFlags, in: []uint32{0}, errno: unix.EPERM},
	// Its flags are in memory, where a filter cannot look. Without it the C
	// library uses clone.
	{call: "clone3", errno: unix.ENOSYS},
	{call: "personality", in: []uint32{0, 8, 0x20000, 0x20008, 0xffffffff}, errno: unix.EPERM},
	{call: "socket", in: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}, errno: unix.EAFNOSUPPORT},
	// Neither types into another one's terminal.
	{call: "ioctl", arg: 1, in: []uint32{unix.TIOCSTI, unix.TIOCLINUX}, not: true, errno: unix.EPERM},
}

// Offsets into struct seccomp_data, on little-endian machines.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16
)

func jump(code uint16, k uint32, jt, jf int) unix.SockFilter {
	if jt < 0 || jt > 255 || jf < 0 || jf > 255 {
		panic("seccomp: jump out of range") // a property of the tables, proved by the tests
	}
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | code, K: k, Jt: uint8(jt), Jf: uint8(jf)}
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func fail(errno unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(errno) }

const allow = unix.SECCOMP_RET_ALLOW

// seccompFilter compiles the rules for this machine.
func seccompFilter() []unix.SockFilter {
	filter := []unix.SockFilter{
		load(offsetArch),
		jump(unix.BPF_JEQ, auditArch, 1, 0),
		ret(fail(unix.ENOSYS)),
		load(offsetCall),
	}
	if firstForeignCall > 0 {
		filter = append(filter, jump(unix.BPF_JGE, firstForeignCall, 0, 1), ret(fail(unix.ENOSYS)))
	}
	for _, r := range rules {
		n, ok := callNumbers[r.call]
		if !ok {
			continue
		}
		body := r.compile()
		filter = append(filter, jump(unix.BPF_JEQ, n, 0, len(body)))
		filter = append(filter, body...)
	}
	return append(filter, search(spans())...)
}

func (r rule) compile() []unix.SockFilter {
	if len(r.in) == 0 {
		return []unix.SockFilter{ret(fail(r.errno))}
	}
	// The kernel takes these arguments as int or truncates them the same way;
	// the upper halves say nothing.
	code := []unix.SockFilter{load(offsetArgs + 8*uint32(r.arg))}
	if r.mask != 0 {
		code = append(code, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: r.mask})
	}
	for i, v := range r.in {
		code = append(code, jump(unix.BPF_JEQ, v, len(r.in)-i, 0))
	}
	miss, hit := fail(r.errno), uint32(allow)
	if r.not {
		miss, hit = hit, miss
	}
	return append(code, ret(miss), ret(hit))
}

// span is a run of call numbers with one action, up to the next span.
type span struct{ first, action uint32 }

func spans() []span {
	actions := make(map[uint32]uint32)
	for name := range strings.FieldsSeq(deniedCalls) {
		if n, ok := callNumbers[name]; ok {
			actions[n] = fail(unix.EPERM)
		}
	}
	for name := range strings.FieldsSeq(allowedCalls) {
		if n, ok := callNumbers[name]; ok {
			actions[n] = allow
		}
	}
	numbers := make([]uint32, 0, len(actions))
	for n := range actions {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	all := []span{{0, fail(unix.ENOSYS)}}
	for _, n := range numbers {
		if n == all[len(all)-1].first {
			all[len(all)-1].action = actions[n]
		} else {
			all = append(all, span{n, actions[n]})
		}
		all = append(all, span{n + 1, fail(unix.ENOSYS)})
	}
	// Neighbours with one action are one span.
	return slices.CompactFunc(all, func(a, b span) bool { return a.action == b.action })
}

// search is a binary search for the call's number.
func search(s []span) []unix.SockFilter {
	if len(s) == 1 {
		return []unix.SockFilter{ret(s[0].action)}
	}
	mid := len(s) / 2
	left, right := search(s[:mid]), search(s[mid:])
	code := append([]unix.SockFilter{jump(unix.BPF_JGE, s[mid].first, len(left), 0)}, left...)
	return append(code, right...)
}

// crunFilter is the annotation that hands a compiled filter to crun.
const crunFilter = "run.oci.seccomp_bpf_data"

// encodeFilter gives the filter the form of the annotation: base64 of the
// array of struct sock_filter.
func encodeFilter(filter []unix.SockFilter) string {
	raw := make([]byte, 0, 8*len(filter))
	for _, f := range filter {
		raw = binary.LittleEndian.AppendUint16(raw, f.Code)
		raw = append(raw, f.Jt, f.Jf)
		raw = binary.LittleEndian.AppendUint32(raw, f.K)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// seccompProfile is the same filter in the form of the specification.
func seccompProfile() *specs.LinuxSeccomp {
	errno := func(e unix.Errno) *uint { return new(uint(e)) }
	p := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: errno(unix.ENOSYS),
		Syscalls: []specs.LinuxSyscall{
			{Names: strings.Fields(allowedCalls), Action: specs.ActAllow},
			{Names: strings.Fields(deniedCalls), Action: specs.ActErrno, ErrnoRet: errno(unix.EPERM)},
		},
	}
	for _, r := range rules {
		switch {
		case len(r.in) == 0:
			p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: []string{r.call}, Action: specs.ActErrno, ErrnoRet: errno(r.errno)})
		case r.not:
			// Arguments of one entry must all hold.
			var args []specs.LinuxSeccompArg
			for _, v := range r.in {
				args = append(args, specs.LinuxSeccompArg{Index: uint(r.arg), Value: uint64(v), Op: specs.OpNotEqual})
			}
			p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: []string{r.call}, Action: specs.ActAllow, Args: args})
		default:
			for _, v := range r.in {
				arg := specs.LinuxSeccompArg{Index: uint(r.arg), Value: uint64(v), Op: specs.OpEqualTo}
				if r.mask != 0 {
					arg = specs.LinuxSeccompArg{Index: uint(r.arg), Value: uint64(r.mask), ValueTwo: uint64(v), Op: specs.OpMaskedEqual}
				}
				p.Syscalls = append(p.Syscalls, specs.LinuxSyscall{Names: []string{r.call}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{arg}})
			}
		}
	}
	return p
}

// filterSize is the most that the kernel accepts; a test counts.
const filterSize = 4096
