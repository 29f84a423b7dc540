package network

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/redirect"
)

// A container has the host's kernel, which follows every redirected connection
// in memory that it counts to nobody. So a container's namespace follows those
// alone, only so many at once, and forgets each soon after its end.
const (
	maxFollowed = 4096
	// followSeconds is how long an ended connection is followed: there is no
	// network on which a packet of it could be late.
	followSeconds = 1
	// Linux collects what it follows no longer only now and then, up to a minute
	// later, and does not count it among maxFollowed. So new connections beyond
	// these have to come again, which programs notice as a slow network.
	newPerSecond = 128
	newAtOnce    = maxFollowed

	// redirectTable is the routing table of redirected connections, and the
	// place of the rule that leads there: behind the table of loopback.
	redirectTable = 100
)

// Offsets in the headers of IPv4 and TCP.
const (
	ipDestination = 16
	tcpSource     = 0
)

// redirectAll makes the TCP connections of the thread's network namespace, which
// has nothing but loopback, arrive at [redirect.Port]. The namespace belongs to
// the host: nobody inside can change this.
func redirectAll() error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	// An address that is not 127.0.0.1: without one, programs that ask for what
	// this machine can reach (AI_ADDRCONFIG) are told that it has no IPv4. It
	// is the one of the names' network that no name gets.
	own := &netlink.Addr{IPNet: &net.IPNet{IP: redirect.Names().Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}, Scope: int(netlink.SCOPE_HOST)}
	if err := netlink.AddrAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: lo.Index}}, own); err != nil {
		return fmt.Errorf("address of loopback: %w", err)
	}
	// To TCP every address is this machine's own, so that there is a way to it;
	// to all else the network stays unreachable.
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: lo.Index, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Src: net.IPv4(127, 0, 0, 1),
		Type: unix.RTN_LOCAL, Table: redirectTable, Scope: netlink.SCOPE_HOST,
	}); err != nil {
		return fmt.Errorf("route to loopback: %w", err)
	}
	rule := netlink.NewRule()
	rule.Family, rule.IPProto, rule.Table, rule.Priority = unix.AF_INET, unix.IPPROTO_TCP, redirectTable, redirectTable
	if err := netlink.RuleAdd(rule); err != nil {
		return fmt.Errorf("route of TCP: %w", err)
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nf_tables: %w", err)
	}
	addRedirect(c)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("nf_tables: %w", err)
	}
	// A connection of which one half goes on is followed as long as it does.
	for _, state := range []string{"time_wait", "close", "last_ack"} {
		// Read-only where cubby itself runs in a container: then those that
		// ended are followed as long as elsewhere.
		_ = os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_"+state, []byte(strconv.Itoa(followSeconds)), 0)
	}
	return nil
}

// addRedirect queues the tables.
func addRedirect(c *nftables.Conn) {
	table := c.AddTable(&nftables.Table{Name: "cubby", Family: nftables.TableFamilyIPv4})
	chain := func(name string, kind nftables.ChainType, priority *nftables.ChainPriority) func(...[]expr.Any) {
		chain := c.AddChain(&nftables.Chain{Table: table, Name: name, Type: kind, Hooknum: nftables.ChainHookOutput, Priority: priority})
		return func(parts ...[]expr.Any) {
			var all []expr.Any
			for _, p := range parts {
				all = append(all, p...)
			}
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: all})
		}
	}
	tcp := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
	}
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	names, outside := destination(expr.CmpOpEq, redirect.Names()), destination(expr.CmpOpNeq, redirect.Loopback())
	port := binary.BigEndian.AppendUint16(nil, redirect.Port)

	follow := chain("follow", nftables.ChainTypeFilter, nftables.ChainPriorityRaw)
	follow(tcp, names, accept)
	follow(tcp, outside, accept)
	follow(tcp, []expr.Any{ // what comes back
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpSource, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: port},
	}, accept)
	follow([]expr.Any{&expr.Notrack{}})

	turn := chain("redirect", nftables.ChainTypeNAT, nftables.ChainPriorityNATDest)
	to := []expr.Any{&expr.Immediate{Register: 1, Data: port}, &expr.Redir{RegisterProtoMin: 1}}
	turn(tcp, names, to)
	turn(tcp, outside, to)

	bound := chain("bound", nftables.ChainTypeFilter, nftables.ChainPriorityFilter)
	isNew := []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATE, Register: 1},
		&expr.Bitwise{
			SourceRegister: 1, DestRegister: 1, Len: 4,
			Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitNEW), Xor: make([]byte, 4),
		},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
	bound(tcp, isNew, []expr.Any{
		&expr.Connlimit{Count: maxFollowed, Flags: expr.NFT_CONNLIMIT_F_INV},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	})
	bound(tcp, isNew, []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: newPerSecond, Unit: expr.LimitTimeSecond, Burst: newAtOnce, Over: true},
		&expr.Verdict{Kind: expr.VerdictDrop},
	})
}

// destination matches packets by where they go.
func destination(op expr.CmpOp, to netip.Prefix) []expr.Any {
	mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-to.Bits()))
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: ipDestination, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: op, Register: 1, Data: to.Addr().AsSlice()},
	}
}
