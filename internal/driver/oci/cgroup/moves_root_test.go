//go:build root

package cgroup

import (
	"os"
	"slices"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// TestFavorMoves asks for quick moves, twice: what else the hierarchy was mounted
// with stays.
func TestFavorMoves(t *testing.T) {
	if namespace, err := os.Readlink("/proc/self/ns/cgroup"); err != nil || namespace != hostNamespace {
		if quick, err := FavorMoves(); quick || err != nil {
			t.Fatalf("in %s: %t, %v", namespace, quick, err)
		}
		return
	}
	options := func() []string {
		mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup2"))
		if err != nil {
			t.Fatal(err)
		}
		if len(mounts) == 0 {
			return nil
		}
		return superOptions(mounts[0].VFSOptions)
	}
	before := options()
	for range 2 {
		quick, err := FavorMoves()
		if err != nil {
			t.Fatal(err)
		}
		after := options()
		want := before
		if quick && before != nil {
			want = append(want, favor)
		}
		for _, o := range want {
			if !slices.Contains(after, o) {
				t.Errorf("%v became %v, which lacks %s", before, after, o)
			}
		}
	}
}
