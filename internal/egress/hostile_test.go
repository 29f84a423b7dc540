package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// An agent that was taken over opens the doors of programs without a proxy as
// often as it can and leaves each half open: asks and does not read, says half a
// line, connects and says nothing. What that takes is little, and others are
// answered.
func TestHostileAgentAtTheOtherDoors(t *testing.T) {
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: []string{"a.example.com"}}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const streams = 300
	var open []net.Conn
	for i := range streams {
		door, says := sandbox.DoorResolve, strings.Repeat("x", 400)
		switch i % 3 {
		case 0:
			says = strings.Repeat(fmt.Sprintf("%d.denied.example.org\n", i), 2000) // and reads nothing
		case 1:
			door, says = sandbox.DoorConnect, "a.example.com:4"
		}
		c := r.dialDoor(door, Guest{Box: "hostile"})
		_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)) // as far as it goes
		_, _ = io.WriteString(c, says)
		open = append(open, c)
	}
	c := r.dialDoor(sandbox.DoorResolve, Guest{Box: "box"})
	if _, err := io.WriteString(c, "a.example.com\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "allow a.example.com\n" {
		t.Errorf("another sandbox is answered %q, %v", line, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse); grown > streams*(64<<10) {
		t.Errorf("%d streams take %d KiB", streams, grown>>10)
	}
	for _, c := range open {
		c.Close()
	}
}

// One name that is asked for again and again is one event, also among others.
func TestDeniedNamesThatAreRemembered(t *testing.T) {
	r := newRig(t, "")
	r.policy = sandbox.Policy{Mode: sandbox.NetworkNone}
	c := r.dialDoor(sandbox.DoorResolve, Guest{Box: "box"})
	lines := bufio.NewReader(c)
	for i := range 10 * rememberedAt {
		name := "again.example.org"
		if i%2 == 0 {
			name = fmt.Sprintf("n%d.example.org", i)
		}
		if _, err := io.WriteString(c, name+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	again := 0
	for _, d := range r.seen() {
		if d.Host == "again.example.org" {
			again++
		}
	}
	if again == 0 || again > 10 {
		t.Errorf("%d events for one name, want one each time that others were forgotten", again)
	}
}
