package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func mounts(t *testing.T, lines string) []*mountinfo.Info {
	t.Helper()
	infos, err := mountinfo.GetMountsFromReader(strings.NewReader(lines), mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		t.Fatal(err)
	}
	return infos
}

const hybridMounts = `30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
35 30 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
54 44 0:28 / /var/chroot/sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
55 44 0:31 / /var/chroot/sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
`

func TestHierarchyHybrid(t *testing.T) {
	h := Of("cubby", mounts(t, hybridMounts))
	if err := h.Usable(); err != nil {
		t.Fatal(err)
	}
	want := []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/pids"}
	if got := h.roots(); !slices.Equal(got, want) {
		t.Errorf("roots = %v, want %v", got, want)
	}
	if h.Hybrid != "/sys/fs/cgroup/unified" || h.V2 != "" {
		t.Errorf("hybrid = %q, v2 = %q; want the unified hierarchy as hybrid only", h.Hybrid, h.V2)
	}
	if h.V1["cpuacct"] == "" {
		t.Error("cpuacct beside cpu is not used, though it costs nothing")
	}
}

func TestHierarchySaysWhatIsMissing(t *testing.T) {
	h := Of("cubby", mounts(t, "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"))
	if err := h.Usable(); err == nil || !strings.Contains(err.Error(), "memory, pids") {
		t.Errorf("usable = %v, want one that names memory and pids", err)
	}
}

func fakeV2(t *testing.T) Hierarchy {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpuset cpu io memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := Of("cubby", mounts(t, "30 23 0:26 / "+root+" rw - cgroup2 cgroup2 rw\n"))
	if err := h.Usable(); err != nil {
		t.Fatal(err)
	}
	return h
}

// The unified hierarchy's controllers are not on the machines where this was
// written; its files are, as plain files.
func TestSettingsV2(t *testing.T) {
	h := fakeV2(t)
	c := h.Group(sandbox.NewUID())
	got := make(map[string]string)
	for _, s := range c.settings(Limits{Memory: 1 << 30, CPUs: 1.5, PIDs: 100}) {
		name, err := filepath.Rel(filepath.Join(h.V2, c.Path), s.file)
		if err != nil {
			t.Fatal(err)
		}
		got[name] = s.value
	}
	for name, want := range map[string]string{
		"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "100",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
}

func TestReadsV2(t *testing.T) {
	h := fakeV2(t)
	uid := sandbox.NewUID()
	c := h.Group(uid)
	dir := filepath.Join(h.V2, c.Path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"memory.events":  "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 0\n",
		"memory.current": "4096\n",
		"pids.current":   "3\n",
		"cpu.stat":       "usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n",
		"cgroup.procs":   "0\n101\n102\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := c.OOMKills(); err != nil || n != 1 {
		t.Errorf("oomKills = %d, %v; want 1", n, err)
	}
	stats, err := c.Stats()
	if err != nil || stats.MemoryBytes != 4096 || stats.PIDs != 3 || stats.CPUTime.Microseconds() != 2500 {
		t.Errorf("stats = %+v, %v", stats, err)
	}
	if pids, err := c.Procs(); err != nil || !slices.Equal(pids, []int{101, 102}) {
		t.Errorf("procs = %v, %v; want 101 and 102", pids, err)
	}
	if uids, err := h.List(); err != nil || !slices.Equal(uids, []sandbox.UID{uid}) {
		t.Errorf("list = %v, %v; want %s", uids, err, uid)
	}
}

func TestMemberOf(t *testing.T) {
	const path = "/cubby/01abc"
	tests := []struct {
		data string
		want bool
	}{
		{"4:memory:/cubby/01abc\n3:cpu:/\n", true},
		{"0::/cubby/01abc\n", true},
		{"0::/system.slice/x/cubby/01abc\n", true},
		{"0::/cubby/01abc/init\n", true},
		{"0::/cubby/01abcd\n", false},
		{"0::/\n", false},
		{"", false},
	}
	for _, tt := range tests {
		if got := memberOf(tt.data, path); got != tt.want {
			t.Errorf("memberOf(%q) = %v, want %v", tt.data, got, tt.want)
		}
	}
}

func FuzzCgroupFiles(f *testing.F) {
	f.Add([]byte("oom_kill 3\n"))
	f.Add([]byte("1\n2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = keyed(data, "oom_kill")
		pids, err := parsePIDs(data)
		if err != nil {
			return
		}
		for _, pid := range pids {
			if pid <= 0 {
				t.Errorf("parsePIDs(%q) gave %d, which kill takes for a group", data, pid)
			}
		}
	})
}
