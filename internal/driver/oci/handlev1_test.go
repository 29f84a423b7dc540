package oci

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// handlesV1 are handles as version 1 wrote them.
var handlesV1 = []string{"gvisor", "container", "shared"}

func handleV1(t testing.TB, name string) driver.Handle {
	t.Helper()
	h, err := os.ReadFile(filepath.Join("testdata", "handle-v1-"+name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The first version must be readable for ever: sandboxes carry it through
// upgrades.
func TestHandleVersion1(t *testing.T) {
	const disk, shared = "/data/disks/01jd3v3x0000000000000000ab/mnt/", "/data/disks/01jd3v3x0000000000000000cd/mnt/"
	own := []volume{
		{Role: driver.VolumeRoot, Dir: disk + "root"},
		{Role: driver.VolumeWorkspace, Dir: disk + "workspace"},
		{Role: driver.VolumeHome, Dir: disk + "home"},
	}
	want := note{
		Version: handleVersion, UID: "01jd3v3x0000000000000000ab", Hostname: "box",
		Limits: sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1.5, PIDs: 512, DiskBytes: 4 << 30, OpenFiles: 1 << 20},
		Rootfs: "/data/images/abc/rootfs", Volumes: own, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "A=b"},
		Init: program{Kind: "cubby-init", Path: "/data/runtimes/1/cubby-init", Digest: "1"},
	}
	tests := map[string]func(n *note){
		"gvisor": func(n *note) {
			n.Isolation, n.Runtime = sandbox.GVisor, program{Kind: runsc, Path: "/data/runtimes/2/runsc", Digest: "2"}
			n.Authorities, n.AuthoritiesDir = "/etc/ssl/certs/ca-certificates.crt", true
		},
		"container": func(n *note) { // of a time before there was the directory of authorities
			n.Isolation, n.Runtime, n.IDBase = sandbox.Container, program{Kind: crun, Path: "/usr/bin/crun"}, 0x30000000
			n.Authorities = "/etc/ssl/certs/ca-certificates.crt"
		},
		"shared": func(n *note) {
			n.Isolation, n.Runtime, n.IDBase = sandbox.Container, program{Kind: runc, Path: "/usr/bin/runc"}, 0x30000000
			n.Volumes = []volume{
				own[0], {Role: driver.VolumeWorkspace, Dir: shared + "workspace"}, own[2],
				{Role: driver.VolumeOutputs, Dir: shared + "outputs"},
				{Role: driver.VolumeUploads, Dir: shared + "uploads", ReadOnly: true},
			}
		},
	}
	for _, name := range handlesV1 {
		want := want
		tests[name](&want)
		got, err := places{}.parse(handleV1(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

// TestRestoreOfASandboxWhoseHandleNamesNoImage: a handle of version 1 names the root
// filesystem of its image and not the digest. What was kept of such a sandbox can be
// restored with the same image, and with no other.
func TestRestoreOfASandboxWhoseHandleNamesNoImage(t *testing.T) {
	n, err := places{}.parse(handleV1(t, "gvisor"))
	if err != nil {
		t.Fatal(err)
	}
	spec := driver.Spec{UID: sandbox.NewUID(), Isolation: n.Isolation, Limits: n.Limits, Image: driver.Image{Digest: "abc", Dir: n.Rootfs}}
	for _, v := range n.Volumes {
		spec.Volumes = append(spec.Volumes, driver.Volume{Role: v.Role, Dir: "/data/disks/other/" + string(v.Role), ReadOnly: v.ReadOnly})
	}
	same := n
	if err := same.become(spec); err != nil || same.Image != "abc" || same.UID != spec.UID {
		t.Errorf("with the same image it is %+v, %v", same, err)
	}
	spec.Image = driver.Image{Digest: "abd", Dir: "/data/images/abd/rootfs"}
	if other := n; other.become(spec) == nil {
		t.Error("it is restored with another image")
	}
	n.Image = "abc"
	if n.become(spec) == nil {
		t.Error("one that names its image is restored with another")
	}
}
