package seccomp

import (
	"encoding/base64"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// machine is what of a filter depends on the architecture.
type machine struct {
	arch    uint32            // as the kernel names it to filters
	foreign uint32            // the first number of another personality; 0: there is none
	numbers map[string]uint32 // of the system calls
}

// arches are the machines that cubby runs on, without their numbers.
func arches() map[string]machine {
	return map[string]machine{
		"amd64": {arch: unix.AUDIT_ARCH_X86_64, foreign: 0x40000000}, // x32
		"arm64": {arch: unix.AUDIT_ARCH_AARCH64},
	}
}

// native is this machine.
func native() machine {
	m := arches()[runtime.GOARCH]
	m.numbers = numbers()
	return m
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

// compile makes the filter that a machine's kernel runs.
func (m machine) compile() []unix.SockFilter {
	filter := []unix.SockFilter{
		load(offsetArch),
		jump(unix.BPF_JEQ, m.arch, 1, 0),
		ret(fail(unix.ENOSYS)),
		load(offsetCall),
	}
	if m.foreign > 0 {
		filter = append(filter, jump(unix.BPF_JGE, m.foreign, 0, 1), ret(fail(unix.ENOSYS)))
	}
	for _, r := range rules {
		n, ok := m.numbers[r.call]
		if !ok {
			continue
		}
		body := r.compile()
		filter = append(filter, jump(unix.BPF_JEQ, n, 0, len(body)))
		filter = append(filter, body...)
	}
	return append(filter, search(m.spans())...)
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

func (m machine) spans() []span {
	actions := make(map[uint32]uint32)
	for name := range strings.FieldsSeq(deniedCalls) {
		if n, ok := m.numbers[name]; ok {
			actions[n] = fail(unix.EPERM)
		}
	}
	for name := range strings.FieldsSeq(allowedCalls) {
		if n, ok := m.numbers[name]; ok {
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

// Annotation hands a compiled filter to crun.
const Annotation = "run.oci.seccomp_bpf_data"

// Filter is the annotation's value: the policy compiled for this machine.
var Filter = sync.OnceValue(func() string { return encode(native().compile()) })

// encode gives the filter the form of the annotation: base64 of the
// array of struct sock_filter.
func encode(filter []unix.SockFilter) string {
	raw := make([]byte, 0, 8*len(filter))
	for _, f := range filter {
		raw = binary.LittleEndian.AppendUint16(raw, f.Code)
		raw = append(raw, f.Jt, f.Jf)
		raw = binary.LittleEndian.AppendUint32(raw, f.K)
	}
	return base64.StdEncoding.EncodeToString(raw)
}
