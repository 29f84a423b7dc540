package proc

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestOOMTextTellsOfMemoryThatIsNobodys(t *testing.T) {
	const mib = 1 << 20
	whole := oomText("python3", 7, 200*mib, 20*mib, 256*mib)
	if want := "out of memory: python3 (pid 7) was killed while it used 200 MiB; the sandbox's limit is 256 MiB"; whole != want {
		t.Errorf("%s, want %s", whole, want)
	}
	if text := oomText("sh", 7, 2*mib, 250*mib, 256*mib); !strings.Contains(text, "250 MiB of it belong to no process") {
		t.Error(text)
	}
}

// Nobody else is killed while the memory of the last victim comes back, and who
// takes it is.
func TestOnePaysAtATime(t *testing.T) {
	if v := (victim{}); !v.paid(0) {
		t.Error("nobody was killed, and somebody is waited for")
	}
	const at = time.Hour
	alive := victim{pid: os.Getpid(), at: at}
	if alive.paid(at+refund-1) || !alive.paid(at+refund) {
		t.Errorf("one that does not die is waited for until %s", refund)
	}
	dead := victim{pid: 1 << 30, at: at} // no such process
	for _, look := range []struct {
		after time.Duration
		paid  bool
	}{{5, false}, {5 + release - 1, false}, {5 + release, true}} {
		if dead.paid(at+look.after) != look.paid {
			t.Errorf("%s after the kill of one that died at once: paid is %t", look.after, !look.paid)
		}
	}
}
