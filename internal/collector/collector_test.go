package collector

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

var kept [][]byte

// churn makes so many bytes of garbage, and reports how often that was collected.
func churn(bytes int) uint32 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range bytes >> 16 {
		kept = append(kept[:0], make([]byte, 1<<16))
	}
	runtime.ReadMemStats(&after)
	return after.NumGC - before.NumGC
}

// TestASmallHeapIsCollectedSeldom: and a large one as its percentage says.
func TestASmallHeapIsCollectedSeldom(t *testing.T) {
	if !alone(t, "GOGC=") {
		return
	}
	debug.SetGCPercent(33)
	small := make([]byte, 8<<20)
	runtime.GC()
	without := churn(256 << 20)
	Above(24<<20, 33, 1<<30)
	runtime.GC()
	if n := churn(256 << 20); n > without*2/3 {
		t.Errorf("256 MiB of garbage beside 8 that live were collected %d times, and %d times without the rule", n, without)
	}
	runtime.KeepAlive(small)

	large := make([][]byte, 192)
	for i := range large {
		large[i] = make([]byte, 1<<20)
	}
	// The rule follows in a goroutine of the runtime's.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		p := debug.SetGCPercent(33)
		debug.SetGCPercent(p)
		if p == 33 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("with 192 MiB alive the heap may grow by %d %%, want 33", p)
		}
	}
	runtime.KeepAlive(large)
}

// TestGOGCDecides: nothing is changed where it is set.
func TestGOGCDecides(t *testing.T) {
	if !alone(t, "GOGC=77") {
		return
	}
	Above(64<<20, 33, 1<<30)
	Later(time.Hour, 1<<20, 0)
	if p := debug.SetGCPercent(77); p != 77 {
		t.Errorf("the percentage is %d, want 77 as GOGC says", p)
	}
}

// alone runs the test in a process of its own, since a rule holds for the rest of a
// process. It is true there.
func alone(t *testing.T, env string) bool {
	t.Helper()
	const inside = "CUBBY_TEST_COLLECTS_ALONE"
	if os.Getenv(inside) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env, inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}
