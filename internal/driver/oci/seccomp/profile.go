package seccomp

import (
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Profile is the policy in the form of the specification.
func Profile() *specs.LinuxSeccomp {
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
