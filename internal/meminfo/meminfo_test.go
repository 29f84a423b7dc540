package meminfo

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestRead(t *testing.T) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	m, err := Read()
	// The kernel counts pages, /proc/meminfo KiB of them.
	if total := int64(info.Totalram) * int64(info.Unit); err != nil || m.Total != total>>10<<10 {
		t.Errorf("total is %d, %v, want %d", m.Total, err, total)
	}
	if m.Available <= 0 || m.Available > m.Total || m.Unwritten < 0 || m.Unwritten > m.Total {
		t.Errorf("got %+v", m)
	}
}
