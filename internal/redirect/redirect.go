// Package redirect makes the TCP connections of a network namespace that has
// nothing but loopback arrive at one port of it, whatever address and port they
// are for. There are two ways to say so to a kernel: [Set], for gVisor's, and
// for Linux the tables that internal/driver/oci makes; [Original] tells what a
// connection was for. The package decides nothing about where a connection may
// go, and touches no network but the namespace of the calling thread.
package redirect

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Port is where redirected connections arrive, on 127.0.0.1.
const Port = 15001

// Names are the addresses that stand for names. They are redirected; the rest of
// 127.0.0.0/8 is not: it is where a sandbox's own servers are.
func Names() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 64, 0, 0}), 10) }

// Loopback is what is not redirected but for [Names].
func Loopback() netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 0, 0}), 8) }

// originalDst is SO_ORIGINAL_DST of linux/netfilter_ipv4.h.
const originalDst = 80

// Original is the address and port that a redirected connection was made to. For
// one that was not redirected it is the address that it arrived at.
func Original(conn *net.TCPConn) (netip.AddrPort, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var address unix.RawSockaddrInet4
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) {
		size := uint32(unsafe.Sizeof(address))
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_IP, originalDst,
			uintptr(unsafe.Pointer(&address)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil {
		return netip.AddrPort{}, err
	}
	if errno == unix.ENOENT { // the kernel knows of no redirect
		return conn.LocalAddr().(*net.TCPAddr).AddrPort(), nil
	}
	if errno != 0 {
		return netip.AddrPort{}, os.NewSyscallError("getsockopt SO_ORIGINAL_DST", errno)
	}
	port := (*[2]byte)(unsafe.Pointer(&address.Port))
	return netip.AddrPortFrom(netip.AddrFrom4(address.Addr), binary.BigEndian.Uint16(port[:])), nil
}
