// Package collector says when Go's garbage collector runs in a process that its
// own rule, the growth of the heap since the last collection, does not suit. It
// leaves that rule alone where GOGC is set: somebody else has decided then.
package collector

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// decided reports that the environment sets the rule.
func decided() bool { return os.Getenv("GOGC") != "" }

// Later leaves garbage alone for a time, in which a process that begins makes many
// objects of which hardly any is garbage. Meanwhile it collects when it takes heap
// bytes. Afterwards it collects as by default, within limit bytes; 0: no limit.
func Later(begin time.Duration, heap, limit int64) {
	if limit == 0 {
		limit = math.MaxInt64
	}
	if decided() {
		if limit < math.MaxInt64 {
			debug.SetMemoryLimit(limit)
		}
		return
	}
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(heap)
	time.AfterFunc(begin, func() {
		debug.SetGCPercent(100)
		debug.SetMemoryLimit(limit)
		debug.FreeOSMemory()
	})
}

// What the heap of a server may grow between collections: what clients make it hold
// then costs a third of that again, and not twice. A small one is collected seldom,
// and one that has grown at once is collected often until that is known.
const (
	serverGrowth = 33 // percent
	serverFloor  = 24 << 20
	serverLimit  = 224 << 20
)

// Server is the rule of a daemon.
func Server() { Above(serverFloor, serverGrowth, serverLimit) }

// Above collects when the heap has grown by percent, and not before it has floor
// bytes: a small heap grows by that much all the time, and what a collection
// costs depends little on the size. The rule follows a heap that has grown by one
// collection: limit bounds what it takes until then.
func Above(floor uint64, percent int, limit int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
	if !decided() {
		r := &rule{floor: floor, percent: percent}
		r.apply()
		r.again()
	}
}

type rule struct {
	floor   uint64
	percent int
	set     int // the percentage of now
}

const (
	// smallest is what the runtime takes a heap for that is smaller.
	smallest = 4 << 20
	// largest is the most that a heap may grow by, in percent.
	largest = 200
)

// apply sets the percentage that fits what was alive at the last collection. Go
// takes it of the heap and of what else is searched (runtime/mgcpacer.go).
func (r *rule) apply() {
	is := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(is)
	alive := max(is[0].Value.Uint64(), smallest)
	p := r.percent
	if r.floor > alive {
		searched := alive + is[1].Value.Uint64() + is[2].Value.Uint64()
		p = max(p, min(int((r.floor-alive)*100/searched), largest))
	}
	if p != r.set {
		r.set = p
		debug.SetGCPercent(p)
	}
}

// again has the rule applied after the next collection, which finds that nobody
// has what is made here.
func (r *rule) again() {
	next := new([16]byte) // not a tiny object, which may live with others
	runtime.AddCleanup(next, func(r *rule) {
		r.apply()
		r.again()
	}, r)
}
