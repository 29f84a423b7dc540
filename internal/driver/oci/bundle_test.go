package oci

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/driver/oci/seccomp"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

var update = flag.Bool("update", false, "rewrite golden files")

func sampleNote(isolation sandbox.Isolation, runtime string) note {
	n := noteOf(driver.Spec{
		UID: "01jd3v3x0000000000000000ab", Isolation: isolation,
		Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1.5, PIDs: 512, DiskBytes: 4 << 30, OpenFiles: 1 << 20},
		Image:  driver.Image{Digest: "abc", Dir: "/data/images/abc/rootfs"}, Volumes: driver.DiskVolumes("/data/disks/01jd3v3x0000000000000000ab/mnt", ""),
		Identity: driver.Identity{ID: "box", Env: []string{"SECRET=does not belong into the bundle"}},
	})
	n.Init = program{Kind: "cubby-init", Path: "/data/runtimes/1/cubby-init", Digest: "1"}
	n.Runtime = program{Kind: runtime, Path: "/usr/bin/" + runtime}
	return n
}

// The bundles are the whole promise to the runtimes; a change shows as a
// change of these files.
func TestBundleGolden(t *testing.T) {
	v1 := cgroup.Hierarchy{Parent: "cubby", Hybrid: "/sys/fs/cgroup/unified", V1: map[string]string{
		"memory": "/sys/fs/cgroup/memory", "pids": "/sys/fs/cgroup/pids",
		"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
	}}
	tests := []struct {
		name      string
		isolation sandbox.Isolation
		runtime   string
		idBase    uint32
		cgroups   cgroup.Hierarchy
	}{
		{"gvisor", sandbox.GVisor, runsc, 0, v1},
		{"crun", sandbox.Container, crun, 0x30000000, v1},
		{"crun-cgroup2", sandbox.Container, crun, 0, cgroup.Hierarchy{Parent: "cubby", V2: "/sys/fs/cgroup"}},
		{"runc", sandbox.Container, runc, 0x30000000, v1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := sampleNote(tt.isolation, tt.runtime)
			n.IDBase = tt.idBase
			b := bundle{
				note: n, box: box{uid: n.UID, dir: "/data/run/oci/" + string(n.UID)}, cgroups: tt.cgroups, nofile: 20000,
				root: "/mnt/rootfs", sysfs: "/mnt/sysfs", cgroup: "/mnt/cgroup",
			}
			if tt.runtime == crun && tt.idBase > 0 {
				b.userns = "/proc/1/fd/9"
			}
			spec := b.spec()
			if spec.Annotations[seccomp.Annotation] != "" {
				spec.Annotations[seccomp.Annotation] = "(compiled)" // the numbers differ between architectures
			}
			got, err := json.MarshalIndent(spec, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			file := filepath.Join("testdata", tt.name+".json")
			if *update {
				if err := os.MkdirAll("testdata", 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("-want +got; if it is meant: go test -run BundleGolden -update\n%s", d)
			}
		})
	}
}

func TestHandleRoundTrip(t *testing.T) {
	want := sampleNote(sandbox.Container, crun)
	want.IDBase, want.Version = 0x30000000, handleVersion
	h, err := places{}.handle(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := places{}.parse(h)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func FuzzHandle(f *testing.F) {
	for _, isolation := range []sandbox.Isolation{sandbox.GVisor, sandbox.Container} {
		h, err := places{}.handle(sampleNote(isolation, crun))
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(h))
	}
	for _, name := range handlesV1 {
		f.Add([]byte(handleV1(f, name)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := places{}.parse(data)
		if err != nil {
			return
		}
		d := Driver{cfg: Config{StateDir: "/state"}}
		if dir := d.box(n.UID).dir; filepath.Dir(dir) != "/state" {
			t.Errorf("the handle %q leads to %s", data, dir)
		}
		for _, dir := range append(n.dirs(), n.Rootfs) {
			if !filepath.IsAbs(dir) {
				t.Errorf("the handle %q has relative paths", data)
			}
		}
		if n.root() == "" {
			t.Errorf("the handle %q has no place for the root filesystem's changes", data)
		}
	})
}

func TestGVisorMemory(t *testing.T) {
	for _, budget := range []int64{32 << 20, 1 << 30, 64 << 30} {
		if got := gvisorMemory(budget); got < budget+128<<20 {
			t.Errorf("gvisorMemory(%d) = %d, want room for gVisor itself", budget, got)
		}
	}
}
