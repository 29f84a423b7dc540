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

// Nobody else is killed while the memory of the last victim comes back, unless the
// others go on taking.
func TestOnePaysAtATime(t *testing.T) {
	const at, others = time.Hour, 1000
	page := int64(os.Getpagesize())
	table := map[int]processInfo{7: {rss: 5000}, 8: {rss: others}, 9: {rss: 9, zombie: true}}
	look := func() map[int]processInfo { return table }
	if v := (victim{}); !v.paid(0, look) {
		t.Error("nobody was killed, and somebody is waited for")
	}
	v := victim{pid: 7, at: at, others: others * page}
	if v.paid(at+refund-1, look) || !v.paid(at+refund, look) {
		t.Errorf("one that does not die is waited for until %s", refund)
	}
	table[8] = processInfo{rss: others + stillTaken/page - 1}
	if v.paid(at, look) {
		t.Error("another pays for the little that it took")
	}
	table[8] = processInfo{rss: others + stillTaken/page}
	if !v.paid(at, look) {
		t.Error("nobody pays although another goes on taking")
	}
	storm := victim{pid: 7, at: at, others: others * page, among: watched + 1}
	if storm.paid(at, func() map[int]processInfo { t.Error("a fork storm is read"); return nil }) {
		t.Error("another pays in a fork storm before the memory of the first has come back")
	}
	// Its memory may come back long after its end.
	table[8] = processInfo{rss: others}
	delete(table, 7)
	if v.paid(at+refund-1, look) {
		t.Error("another pays for memory that comes back late")
	}
}

func TestFilesInMemoryAreFound(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal:  1000 kB\nMapped: 7 kB\nShmem:        120 kB\n": 120 << 10,
		"Shmem: x kB\n": 0,
		"Shmem:":        0,
		"":              0,
	} {
		if got := inFiles(text); got != want {
			t.Errorf("inFiles(%q) = %d, want %d", text, got, want)
		}
	}
}
