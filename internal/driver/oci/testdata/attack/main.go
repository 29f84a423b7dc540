// Command attack is what the tests run inside of sandboxes to take what the
// host has once for everybody. Each attack is bounded and prints how far it
// came, as "NAME COUNT"; with "hold" behind it, it keeps what it has until its
// standard input ends.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

func init() { runtime.LockOSThread() }

func main() {
	attacks := map[string]func(most int) int{
		"terminals": terminals, "aio": aio, "tcp": tcp, "udp": udp, "unix": unixes, "signals": signals, "locks": locks,
		"pipes": pipes, "watches": watches, "timers": timers, "semaphores": semaphores,
		"messages": messages, "slay": slay, "epoll": epolls, "traceme": traceMe, "storm": storm, "clock": clock,
	}
	attack := attacks[os.Args[1]]
	most, err := strconv.Atoi(os.Args[2])
	if attack == nil || err != nil {
		fmt.Println("usage: attack NAME COUNT [hold]")
		os.Exit(2)
	}
	fmt.Println(os.Args[1], attack(most))
	if len(os.Args) > 3 {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// terminals opens pseudo-terminals.
func terminals(most int) (n int) {
	for ; n < most; n++ {
		if _, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
			fmt.Println(err)
			break
		}
	}
	return n
}

// aio reserves events of asynchronous I/O, and names the error of the first
// refusal.
func aio(most int) (n int) {
	for ; n < most; n++ {
		var context uintptr
		if _, _, errno := syscall.Syscall(syscall.SYS_IO_SETUP, 128, uintptr(unsafe.Pointer(&context)), 0); errno != 0 {
			fmt.Println(errno == syscall.ENOSYS, errno)
			break
		}
	}
	return n
}

// kept are connections that must not be closed while the attack is on.
var kept []io.Closer

// tcp fills the buffers of connections that nobody reads, and counts bytes.
func tcp(most int) (n int) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return 0
	}
	piece := make([]byte, 1<<20)
	for connections := 0; n < most && connections < 256; connections++ {
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			fmt.Println(err)
			break
		}
		far, err := l.Accept()
		if err != nil {
			fmt.Println(err)
			break
		}
		kept = append(kept, c, far)
		for n < most {
			_ = c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			wrote, err := c.Write(piece)
			n += wrote
			if err != nil {
				break
			}
		}
	}
	return n
}

// udp fills the buffers of sockets that nobody reads, and counts bytes.
func udp(most int) (n int) {
	piece := make([]byte, 60<<10)
	from, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		fmt.Println(err)
		return 0
	}
	for sockets := 0; n < most && sockets < 900; sockets++ {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			fmt.Println(err)
			break
		}
		kept = append(kept, c)
		_ = c.SetReadBuffer(8 << 20)
		for range 8 {
			_, _ = from.WriteToUDP(piece, c.LocalAddr().(*net.UDPAddr))
		}
		raw, err := c.SyscallConn()
		if err != nil {
			break
		}
		// SIOCINQ would name the first one alone: the kernel's own count of
		// the queue is what matters.
		_ = raw.Control(func(fd uintptr) {
			var info [9]uint32
			size := uint32(unsafe.Sizeof(info))
			const soMemInfo = 55
			_, _, errno := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, soMemInfo, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
			if errno == 0 {
				n += int(info[0])
			}
		})
	}
	return n
}

// unixes fills the buffers of pairs of UNIX sockets, and counts bytes.
func unixes(most int) (n int) {
	piece := make([]byte, 64<<10)
	for n < most {
		pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			fmt.Println(err)
			break
		}
		for n < most {
			wrote, err := syscall.Write(pair[0], piece)
			if err != nil {
				break
			}
			n += wrote
		}
	}
	return n
}

// locks takes locks of single bytes of many files.
func locks(most int) (n int) {
	const perFile = 500
	for n < most {
		f, err := os.CreateTemp("", "lock")
		if err != nil {
			fmt.Println(err)
			return n
		}
		_ = os.Remove(f.Name())
		kept = append(kept, f)
		for i := range perFile {
			lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(2 * i), Len: 1}
			if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err != nil {
				fmt.Println(err)
				return n
			}
			n++
		}
	}
	return n
}

// pipes makes pipes as large as it may, fills them, and counts bytes.
func pipes(most int) (n int) {
	const setPipeSize = 1031
	piece := bytes.Repeat([]byte{1}, 1<<20)
	for n < most {
		var p [2]int
		if err := syscall.Pipe2(p[:], syscall.O_NONBLOCK); err != nil {
			fmt.Println(err)
			break
		}
		_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(p[1]), setPipeSize, 1<<20)
		for n < most {
			wrote, err := syscall.Write(p[1], piece)
			if err != nil {
				break
			}
			n += wrote
		}
	}
	return n
}

// watches makes inotify instances.
func watches(most int) (n int) {
	for ; n < most; n++ {
		if _, err := syscall.InotifyInit1(0); err != nil {
			fmt.Println(err)
			break
		}
	}
	return n
}

// timers makes POSIX timers.
func timers(most int) (n int) {
	for ; n < most; n++ {
		var id int32
		if _, _, errno := syscall.Syscall(syscall.SYS_TIMER_CREATE, 0, 0, uintptr(unsafe.Pointer(&id))); errno != 0 {
			fmt.Println(errno)
			break
		}
	}
	return n
}

// signals sends signals that wait to this process.
func signals(most int) (n int) {
	const realTime = 40
	block := uint64(1) << (realTime - 1)
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, 0, uintptr(unsafe.Pointer(&block)), 0, 8, 0, 0); errno != 0 {
		fmt.Println(errno)
		return 0
	}
	for ; n < most; n++ {
		var info [16]uint64 // of siginfo_t: si_code is SI_QUEUE
		info[1] = uint64(^uint32(0))
		// To this thread, which blocks it.
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getpid()), uintptr(syscall.Gettid()), realTime, uintptr(unsafe.Pointer(&info)), 0, 0); errno != 0 {
			fmt.Println(errno)
			break
		}
	}
	return n
}

// semaphores makes sets of System V semaphores.
func semaphores(most int) (n int) {
	for ; n < most; n++ {
		if _, _, errno := syscall.Syscall(syscall.SYS_SEMGET, 0, 250, 0o1600); errno != 0 {
			fmt.Println(errno)
			break
		}
	}
	return n
}

// messages fills queues of System V messages, and counts bytes.
func messages(most int) (n int) {
	text := make([]byte, 8+8192)
	text[0] = 1
	for n < most {
		id, _, errno := syscall.Syscall(syscall.SYS_MSGGET, 0, 0o1600, 0)
		if errno != 0 {
			fmt.Println(errno)
			break
		}
		for n < most {
			if _, _, errno := syscall.Syscall6(syscall.SYS_MSGSND, id, uintptr(unsafe.Pointer(&text[0])), 8192, 0o4000, 0, 0); errno != 0 {
				break
			}
			n += 8192
		}
	}
	return n
}

// epolls watches one pipe in many epoll instances.
func epolls(most int) (n int) {
	var p [2]int
	if err := syscall.Pipe2(p[:], 0); err != nil {
		fmt.Println(err)
		return 0
	}
	for ; n < most; n++ {
		e, err := syscall.EpollCreate1(0)
		if err == nil {
			err = syscall.EpollCtl(e, syscall.EPOLL_CTL_ADD, p[0], &syscall.EpollEvent{Events: syscall.EPOLLIN})
		}
		if err != nil {
			fmt.Println(err)
			break
		}
	}
	return n
}

// storm forks for most milliseconds: everybody who is there forks on, half of
// them with a first thread that has ended, and all wake who was stopped.
func storm(most int) int {
	if os.Getenv("HEADLESS") == "" {
		_ = os.Setenv("HEADLESS", "1")
	} else {
		_ = os.Unsetenv("HEADLESS")
		// main runs on the first thread: see init.
		go rage(most)
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
	rage(most)
	return 0
}

func rage(most int) {
	for end := time.Now().Add(time.Duration(most) * time.Millisecond); time.Now().Before(end); {
		_, _ = syscall.ForkExec("/proc/self/exe", os.Args, &syscall.ProcAttr{
			Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		_ = syscall.Kill(-1, syscall.SIGCONT)
	}
	os.Exit(0)
}

// traceMe asks to be traced by whoever started it and stops with a signal:
// the end is still to come.
func traceMe(code int) int {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PTRACE, syscall.PTRACE_TRACEME, 0, 0); errno != 0 {
		fmt.Println(errno)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil && !errors.Is(err, syscall.EPERM) {
		fmt.Println(err)
	}
	return code
}

// clock takes nothing: it prints what time it is, in nanoseconds, ten times a second.
func clock(most int) int {
	for range most {
		fmt.Println(time.Now().UnixNano())
		time.Sleep(100 * time.Millisecond)
	}
	return most
}
