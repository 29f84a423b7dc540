package resolver

import (
	"container/list"
	"net/netip"
	"sync"
)

// Names gives names addresses of their own, and knows the name of an address
// again when somebody connects to it. What was asked for or connected to the
// longest ago is forgotten when there are too many, but nothing that has a
// connection. Its methods are safe for concurrent use.
type Names struct {
	prefix netip.Prefix
	most   int

	mu     sync.Mutex
	next   netip.Addr
	byName map[string]*list.Element
	byAddr map[netip.Addr]*list.Element
	used   *list.List // of *named, the one used last in front
}

// named is a name that has an address.
type named struct {
	name        string
	address     netip.Addr
	connections int
}

// NewNames gives out the addresses of prefix, to at most so many names at once,
// of which there must be fewer than addresses. An address that was forgotten is
// the last to be given out again: programs may still remember it.
func NewNames(prefix netip.Prefix, most int) *Names {
	return &Names{
		prefix: prefix, most: most, next: prefix.Addr(),
		byName: make(map[string]*list.Element), byAddr: make(map[netip.Addr]*list.Element), used: list.New(),
	}
}

// Address is that of a name, from now on or as before. False when as many names
// as there may be have connections.
func (n *Names) Address(name string) (netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e := n.byName[name]; e != nil {
		n.used.MoveToFront(e)
		return e.Value.(*named).address, true
	}
	if len(n.byName) >= n.most && !n.forgetOne() {
		return netip.Addr{}, false
	}
	e := n.used.PushFront(&named{name: name, address: n.free()})
	n.byName[name], n.byAddr[e.Value.(*named).address] = e, e
	return e.Value.(*named).address, true
}

// forgetOne forgets the name that was used the longest ago of those without a
// connection.
func (n *Names) forgetOne() bool {
	for e := n.used.Back(); e != nil; e = e.Prev() {
		if o := e.Value.(*named); o.connections == 0 {
			n.used.Remove(e)
			delete(n.byName, o.name)
			delete(n.byAddr, o.address)
			return true
		}
	}
	return false
}

// free is the next address in the round that is nobody's.
func (n *Names) free() netip.Addr {
	for {
		n.next = n.next.Next()
		if !n.prefix.Contains(n.next) {
			n.next = n.prefix.Addr().Next() // the first names the network
		}
		if n.byAddr[n.next] == nil {
			return n.next
		}
	}
}

// Name is whose address it is; false for nobody's.
func (n *Names) Name(address netip.Addr) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byAddr[address]
	if e == nil {
		return "", false
	}
	return e.Value.(*named).name, true
}

// Connect is Name for a connection, until which ends the name is not forgotten:
// call leave then, once.
func (n *Names) Connect(address netip.Addr) (name string, leave func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.byAddr[address]
	if e == nil {
		return "", nil, false
	}
	o := e.Value.(*named)
	o.connections++
	n.used.MoveToFront(e)
	return o.name, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		o.connections--
	}, true
}
