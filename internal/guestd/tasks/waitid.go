package tasks

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// endedChild returns a child that has ended and was not waited for; 0 for none.
func endedChild() (pid int, err error) {
	// siginfo_t of a 64-bit kernel, as waitid(2) fills it.
	var info struct {
		signo, errno, code, _ int32
		pid                   int32
		_                     [108]byte
	}
	for {
		err = unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return int(info.pid), err
		}
	}
}
