package redirect

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// The kernel refuses a table whose offsets do not lead from rule to rule.
func TestTableLeadsFromRuleToRule(t *testing.T) {
	table := natTable(5)
	count, size := order.Uint32(table[36:]), order.Uint32(table[40:])
	entries := table[replaceHeader:]
	if int(size) != len(entries) {
		t.Fatalf("%d bytes of rules, want %d", len(entries), size)
	}
	var starts []uint32
	for at := uint32(0); at < size; {
		starts = append(starts, at)
		rule := entries[at:]
		target, next := order.Uint16(rule[entryTarget:]), order.Uint16(rule[entryNext:])
		if got := order.Uint16(rule[target:]); got != next-target {
			t.Errorf("rule %d: a target of %d bytes in %d", len(starts), got, next-target)
		}
		at += uint32(next)
	}
	if int(count) != len(starts) {
		t.Errorf("%d rules, want %d", len(starts), count)
	}
	for hook, valid := range map[int]bool{prerouting: true, input: true, 2: false, output: true, postrouting: true} {
		first, policy := order.Uint32(table[44+4*hook:]), order.Uint32(table[64+4*hook:])
		if valid && (!slices.Contains(starts, first) || !slices.Contains(starts, policy) || first > policy) {
			t.Errorf("hook %d: from %d to %d; rules begin at %v", hook, first, policy, starts)
		}
		if redirects := policy - first; (redirects > 0) != (hook == output) {
			t.Errorf("hook %d: %d bytes of rules before its policy", hook, redirects)
		}
	}
}

func TestRuleMatches(t *testing.T) {
	e := entry(netip.MustParsePrefix("127.64.0.0/10"), true, 6, redirectTarget())
	if got := net.IP(e[entryDst : entryDst+4]).String(); got != "127.64.0.0" {
		t.Errorf("address %s", got)
	}
	if got := net.IPMask(e[entryDstMask : entryDstMask+4]).String(); got != "ffc00000" {
		t.Errorf("mask %s", got)
	}
	if e[entryInvert] != invertDst || order.Uint16(e[entryProto:]) != 6 {
		t.Errorf("inverted %d, protocol %d", e[entryInvert], order.Uint16(e[entryProto:]))
	}
	if got := binary.BigEndian.Uint16(e[entrySize+targetHeader+16:]); got != Port {
		t.Errorf("port %d", got)
	}
}

// A connection that nothing redirected was made to where it arrived.
func TestOriginalOfWhatIsNotRedirected(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := Original(conn.(*net.TCPConn)); err != nil || got.String() != l.Addr().String() {
		t.Errorf("Original = %v, %v, want %v", got, err, l.Addr())
	}
}
