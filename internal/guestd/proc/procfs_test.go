package proc

import (
	"bytes"
	"os"
	"slices"
	"testing"
)

func TestParseStat(t *testing.T) {
	const tail = " 10 20 30 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 4096 7 0 0"
	tests := []struct {
		name, line string
		want       processInfo
		ok         bool
	}{
		{"plain", "5 (sh) S" + tail, processInfo{parent: 10, session: 30, name: "sh", rss: 7, since: 99}, true},
		{"zombie", "5 (sh) Z" + tail, processInfo{parent: 10, session: 30, zombie: true, name: "sh", rss: 7, since: 99}, true},
		{"name that looks like fields", "5 (a) S 1 1 1 (b) S" + tail, processInfo{parent: 10, session: 30, name: "a) S 1 1 1 (b", rss: 7, since: 99}, true},
		{"name that is no text", "5 (\xff\n) S" + tail, processInfo{parent: 10, session: 30, name: "\uFFFD\n", rss: 7, since: 99}, true},
		{"cut", "5 (sh) S 10 20", processInfo{}, false},
		{"no name", "5 sh S" + tail, processInfo{}, false},
		{"empty", "", processInfo{}, false},
	}
	for _, tt := range tests {
		if got, ok := parseStat([]byte(tt.line)); got != tt.want || ok != tt.ok {
			t.Errorf("%s: parseStat = %+v, %v, want %+v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
	if self, ok := readProcess(os.Getpid()); !ok || self.parent != os.Getppid() || self.rss == 0 {
		t.Errorf("readProcess(self) = %+v, %v", self, ok)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("5 (sh) S 10 20 30 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 4096 7 0 0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok := parseStat(b); ok && !bytes.ContainsRune(b, '(') {
			t.Error("accepted a line without a name")
		}
	})
}

func TestDescendants(t *testing.T) {
	table := map[int]processInfo{
		2: {parent: 1}, 3: {parent: 2}, 4: {parent: 3, zombie: true}, 5: {parent: 4}, 6: {parent: 1},
		// A snapshot can hold a circle when pids were used again meanwhile.
		7: {parent: 8}, 8: {parent: 7}, 9: {parent: 9},
	}
	for root, want := range map[int][]int{1: {2, 3, 5, 6}, 2: {3, 5}, 6: {}, 7: {8}, 9: {}} {
		got := keys(descendants(table, root))
		slices.Sort(got)
		if !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("descendants(%d) = %v, want %v", root, got, want)
		}
	}
}

func TestNextLookIsInTime(t *testing.T) {
	for _, left := range []int64{-1, 0, 1 << 20, 1 << 28, 1 << 40} {
		wait := nextLook(left)
		if wait < closestLook || wait > rarestLook {
			t.Errorf("nextLook(%d) = %v, out of bounds", left, wait)
		}
		if grown := int64(wait.Seconds() * fastestGrowth); wait > closestLook && grown > left {
			t.Errorf("nextLook(%d) = %v: %d bytes can be taken until then", left, wait, grown)
		}
	}
	if nextLook(1<<40) != rarestLook || nextLook(0) != closestLook {
		t.Errorf("nextLook = %v and %v at the ends, want %v and %v", nextLook(1<<40), nextLook(0), rarestLook, closestLook)
	}
}

func TestParseOOMKills(t *testing.T) {
	for text, want := range map[string]int64{
		"low 0\nhigh 0\nmax 5\noom 3\noom_kill 2\noom_group_kill 0\n": 2,
		"oom_kill_disable 0\nunder_oom 0\noom_kill 7\n":               7,
	} {
		if n, ok := parseOOMKills(text); !ok || n != want {
			t.Errorf("parseOOMKills(%q) = %d, %v, want %d", text, n, ok, want)
		}
	}
	if _, ok := parseOOMKills("oom_kill_disable 0\n"); ok {
		t.Error("a file without the counter has one")
	}
}
