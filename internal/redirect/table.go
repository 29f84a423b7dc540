package redirect

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What follows is the interface of the kernel's first packet filter, which
// gVisor has too: linux/netfilter_ipv4/ip_tables.h and
// linux/netfilter/x_tables.h, on 64-bit little-endian machines.
const (
	tableName  = "nat"
	setReplace = 64 // IPT_SO_SET_REPLACE
	getInfo    = 64 // IPT_SO_GET_INFO

	hooks       = 5 // NF_INET_NUMHOOKS
	prerouting  = 0
	input       = 1
	output      = 3
	postrouting = 4

	entrySize       = 112 // struct ipt_entry
	entryDst        = 4
	entryDstMask    = 12
	entryProto      = 80
	entryInvert     = 83
	invertDst       = 0x10 // IPT_INV_DSTIP
	entryTarget     = 88
	entryNext       = 90
	targetHeader    = 32 // struct xt_entry_target
	targetName      = 2
	replaceHeader   = 96 // struct ipt_replace
	replaceCount    = 36
	infoSize        = 84 // struct ipt_getinfo
	infoEntries     = 76
	counterSize     = 16 // struct xt_counters
	rangeSpecified  = 2  // NF_NAT_RANGE_PROTO_SPECIFIED
	verdictAccept   = ^uint32(1)
	maxErrorName    = 30 // XT_FUNCTION_MAXNAMELEN
	tableNameLength = 32
)

var order = binary.LittleEndian

// Set redirects, to [Port], with IPT_SO_SET_REPLACE, and makes loopback the
// route to every IPv4 address, so that there is a way to what is redirected.
// Datagrams to the outside go to a port that nobody has, for whoever sent them to
// be told. It is for gVisor, and
// needs CAP_NET_ADMIN and CAP_NET_RAW there. Linux counts what it follows to
// nobody; see internal/driver/oci for how a container is kept from that.
func Set() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("raw socket", err)
	}
	defer func() { _ = unix.Close(socket) }()
	if err := replace(socket); err != nil {
		return err
	}
	return routeToLoopback()
}

// Restore is [Set] for a kernel that may have forgotten: gVisor's comes out of a
// kept memory with the connections of before, but with the tables and routes of
// one that has just begun. Where they are there it does nothing.
func Restore() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return os.NewSyscallError("raw socket", err)
	}
	defer func() { _ = unix.Close(socket) }()
	have, err := entries(socket)
	if err != nil || have == order.Uint32(natTable(0)[replaceCount:]) {
		return err
	}
	// The table last: it says that the rest is there.
	if err := routeToLoopback(); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return replace(socket)
}

// replace replaces the table of what is done with connections.
func replace(socket int) error {
	// The kernel gives back the counters of the rules that were there.
	before, err := entries(socket)
	if err != nil {
		return err
	}
	counters := make([]byte, counterSize*max(1, int(before)))
	table := natTable(before)
	var pinned runtime.Pinner
	pinned.Pin(&counters[0])
	defer pinned.Unpin()
	*(*uintptr)(unsafe.Pointer(&table[replaceHeader-8])) = uintptr(unsafe.Pointer(&counters[0]))
	if _, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(socket), unix.SOL_IP, setReplace,
		uintptr(unsafe.Pointer(&table[0])), uintptr(len(table)), 0); errno != 0 {
		return os.NewSyscallError("setsockopt IPT_SO_SET_REPLACE", errno)
	}
	return nil
}

// entries is how many rules the table has.
func entries(socket int) (uint32, error) {
	info := make([]byte, infoSize)
	copy(info, tableName)
	size := uint32(len(info))
	if _, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(socket), unix.SOL_IP, getInfo,
		uintptr(unsafe.Pointer(&info[0])), uintptr(unsafe.Pointer(&size)), 0); errno != 0 {
		return 0, os.NewSyscallError("getsockopt IPT_SO_GET_INFO", errno)
	}
	return order.Uint32(info[infoEntries:]), nil
}

// natTable is that table, as the argument of IPT_SO_SET_REPLACE without the
// address of the counters, of which there are before.
func natTable(before uint32) []byte {
	var entries []byte
	var first, policy [hooks]uint32
	count, valid := uint32(0), uint32(0)
	add := func(e []byte) uint32 {
		at := uint32(len(entries))
		entries = append(entries, e...)
		count++
		return at
	}
	any4 := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	for _, hook := range []int{prerouting, input, output, postrouting} {
		valid |= 1 << hook
		first[hook] = uint32(len(entries))
		if hook == output {
			add(entry(Names(), false, unix.IPPROTO_TCP, redirectTarget()))
			add(entry(Loopback(), true, unix.IPPROTO_TCP, redirectTarget()))
			add(entry(Loopback(), true, unix.IPPROTO_UDP, redirectTarget()))
		}
		policy[hook] = add(entry(any4, false, 0, target("", order.AppendUint32(nil, verdictAccept))))
	}
	errorName := make([]byte, maxErrorName)
	copy(errorName, "ERROR")
	add(entry(any4, false, 0, target("ERROR", errorName)))

	table := make([]byte, replaceHeader, replaceHeader+len(entries))
	copy(table, tableName)
	header := order.AppendUint32(table[:tableNameLength], valid)
	header = order.AppendUint32(header, count)
	header = order.AppendUint32(header, uint32(len(entries)))
	for _, offsets := range [][hooks]uint32{first, policy} {
		for _, o := range offsets {
			header = order.AppendUint32(header, o)
		}
	}
	order.AppendUint32(header, before)
	return append(table, entries...)
}

// entry is a rule for packets of a protocol (0: any) to addresses, or to all
// others.
func entry(to netip.Prefix, others bool, protocol uint16, target []byte) []byte {
	e := make([]byte, entrySize, entrySize+len(target))
	address := to.Addr().As4()
	copy(e[entryDst:], address[:])
	binary.BigEndian.PutUint32(e[entryDstMask:], ^uint32(0)<<(32-to.Bits()))
	order.PutUint16(e[entryProto:], protocol)
	if others {
		e[entryInvert] = invertDst
	}
	order.PutUint16(e[entryTarget:], entrySize)
	order.PutUint16(e[entryNext:], uint16(entrySize+len(target)))
	return append(e, target...)
}

func target(name string, argument []byte) []byte {
	size := (targetHeader + len(argument) + 7) &^ 7
	t := make([]byte, size)
	order.PutUint16(t, uint16(size))
	copy(t[targetName:], name)
	copy(t[targetHeader:], argument)
	return t
}

// redirectTarget's argument is a struct nf_nat_ipv4_multi_range_compat.
func redirectTarget() []byte {
	argument := order.AppendUint32(nil, 1)
	argument = order.AppendUint32(argument, rangeSpecified)
	argument = append(argument, make([]byte, 8)...) // no addresses
	argument = binary.BigEndian.AppendUint16(argument, Port)
	argument = binary.BigEndian.AppendUint16(argument, Port)
	return target("REDIRECT", argument)
}

// routeToLoopback makes loopback the way to every address. What is not redirected
// finds nobody there. An address that is not 127.0.0.1 is for programs that ask
// for what this machine can reach (AI_ADDRCONFIG), to which it had no IPv4; it is
// the one of the names' network that no name gets.
func routeToLoopback() error {
	lo, err := loopbackIndex()
	if err != nil {
		return err
	}
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("netlink socket", err)
	}
	defer func() { _ = unix.Close(socket) }()
	own := Names().Addr().As4()
	address := order.AppendUint32([]byte{unix.AF_INET, 32, 0, unix.RT_SCOPE_HOST}, lo) // struct ifaddrmsg
	address = attribute(address, unix.IFA_LOCAL, own[:])
	address = attribute(address, unix.IFA_ADDRESS, own[:])
	if err := ask(socket, unix.RTM_NEWADDR, address); err != nil {
		return os.NewSyscallError("netlink RTM_NEWADDR", err)
	}
	route := []byte{unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_LINK, unix.RTN_UNICAST, 0, 0, 0, 0} // struct rtmsg
	route = attribute(route, unix.RTA_DST, make([]byte, 4))
	route = attribute(route, unix.RTA_OIF, order.AppendUint32(nil, lo))
	if err := ask(socket, unix.RTM_NEWROUTE, route); err != nil {
		return os.NewSyscallError("netlink RTM_NEWROUTE", err)
	}
	return nil
}

// attribute appends an attribute of four bytes.
func attribute(message []byte, kind uint16, value []byte) []byte {
	message = order.AppendUint16(message, unix.SizeofRtAttr+4)
	message = order.AppendUint16(message, kind)
	return append(message, value...)
}

// ask has the kernel do something that it answers with a code.
func ask(socket int, kind uint16, what []byte) error {
	message := make([]byte, unix.SizeofNlMsghdr, unix.SizeofNlMsghdr+len(what))
	order.PutUint32(message, uint32(unix.SizeofNlMsghdr+len(what)))
	order.PutUint16(message[4:], kind)
	order.PutUint16(message[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	if err := unix.Sendto(socket, append(message, what...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(socket, reply, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || order.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return unix.EPROTO
	}
	if code := int32(order.Uint32(reply[unix.SizeofNlMsghdr:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

func loopbackIndex() (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request); err != nil {
		return 0, os.NewSyscallError("index of lo", err)
	}
	return request.Uint32(), nil
}
