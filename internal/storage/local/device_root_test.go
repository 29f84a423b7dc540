//go:build root

package local

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A device is found wherever it still has an image: mounted, detached from sight, or
// just attached. Only of an image that nobody has open is it believed that there is none.
func TestWhoHasAnImageOpen(t *testing.T) {
	d := realDisks(t, Config{})
	disk := mustCreate(t, d, 32<<20)
	image := d.image(disk.UID)
	f, err := openImage(image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := func(when string, devices int, alone bool) {
		t.Helper()
		if found, err := loopsOf(image); err != nil || len(found) != devices {
			t.Errorf("%s: loopsOf = %v, %v, want %d", when, found, err, devices)
		}
		if got := onlyOpen(f); got != alone {
			t.Errorf("%s: onlyOpen = %v, want %v", when, got, alone)
		}
	}
	want("mounted", 1, false)
	held, err := os.Open(disk.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(disk.Dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	want("detached", 1, false)
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if released, err := waitReleased(t.Context(), 10*time.Second, func() (bool, error) { return !onlyOpen(f), nil }); err != nil || !released {
		t.Fatalf("the device keeps the image of a disk that is not mounted: %v, %v", released, err)
	}
	want("released", 0, true)
	for _, how := range []int{os.O_RDONLY, os.O_RDWR} {
		other, err := os.OpenFile(image, how, 0)
		if err != nil {
			t.Fatal(err)
		}
		want("open elsewhere", 0, false)
		other.Close()
	}
	first, _, err := attach(image)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	want("attached", 1, false)
	second, _, err := attach(image)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if first.Name() != second.Name() {
		t.Errorf("one image has the devices %s and %s", first.Name(), second.Name())
	}
}
