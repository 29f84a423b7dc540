package resolver

import (
	"fmt"
	"net/netip"
	"testing"
)

var small = netip.MustParsePrefix("127.64.0.0/28") // fifteen addresses

func TestNameKeepsItsAddress(t *testing.T) {
	n := NewNames(small, 4)
	a, _ := n.Address("a.example.com")
	b, _ := n.Address("b.example.com")
	if a == b || !small.Contains(a) || !small.Contains(b) {
		t.Fatalf("addresses %v and %v", a, b)
	}
	if again, _ := n.Address("a.example.com"); again != a {
		t.Errorf("a.example.com is at %v and then at %v", a, again)
	}
	if name, ok := n.Name(b); name != "b.example.com" || !ok {
		t.Errorf("Name(%v) = %q, %v", b, name, ok)
	}
	if _, ok := n.Name(small.Addr()); ok {
		t.Error("an address that was not given out has a name")
	}
}

func TestOldestNameWithoutConnectionIsForgotten(t *testing.T) {
	n := NewNames(small, 3)
	var at [6]netip.Addr
	for i := range 3 {
		at[i], _ = n.Address(fmt.Sprint(i))
	}
	_, leave, ok := n.Connect(at[0])
	if !ok {
		t.Fatal("no connection to an address that was given out")
	}
	at[3], _ = n.Address("3") // 1 goes: 0 has a connection
	if _, ok := n.Name(at[1]); ok {
		t.Error("the name used the longest ago is still there")
	}
	at[4], _ = n.Address("4")
	at[5], _ = n.Address("5")
	if name, _ := n.Name(at[0]); name != "0" {
		t.Errorf("a name with a connection is %q now", name)
	}
	leave()
	n.Address("6")
	if _, ok := n.Name(at[0]); ok {
		t.Error("a name whose connection has ended is not forgotten")
	}
	if len(n.byName) != 3 || len(n.byAddr) != 3 || n.used.Len() != 3 {
		t.Errorf("%d names, %d addresses, %d in order, want 3", len(n.byName), len(n.byAddr), n.used.Len())
	}
}

func TestNamesWithConnectionsAreNeverForgotten(t *testing.T) {
	n := NewNames(small, 3)
	for i := range 3 {
		a, _ := n.Address(fmt.Sprint(i))
		n.Connect(a)
	}
	if a, ok := n.Address("one more"); ok {
		t.Errorf("one more name got %v", a)
	}
}

// A program may remember an address whose name was forgotten: it must not mean
// another one soon.
func TestForgottenAddressIsTheLastGivenOutAgain(t *testing.T) {
	n := NewNames(small, 3)
	last := map[netip.Addr]int{}
	for i := range 100 {
		a, ok := n.Address(fmt.Sprint(i))
		if !ok {
			t.Fatalf("name %d got no address", i)
		}
		if before, was := last[a]; was && i-before < 15 {
			t.Errorf("%v is given out to name %d and again to name %d", a, before, i)
		}
		last[a] = i
	}
	if len(last) != 15 {
		t.Errorf("%d addresses were given out, want 15", len(last))
	}
}
