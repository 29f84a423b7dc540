//go:build !race

package core_test

import (
	"fmt"
	"io"
	"testing"
)

// A download goes on while the sandbox is being used, and holds no more than a
// piece of it.
func TestExportOfALargeFile(t *testing.T) {
	w := newWorld(t)
	w.member("a", "")
	const size = 256 << 20
	w.sh("a", fmt.Sprintf("truncate -s %d big; mkdir d; ln big d/big", size))
	if f := w.export("a", "big", "d"); f[0].Size != size || f[1].Size != size {
		t.Errorf("exported %d and %d bytes, want %d", f[0].Size, f[1].Size, size)
	}
	d, err := w.Exports().Open(w.ctx, "a", "big", "")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n, err := io.Copy(io.Discard, d); n != size || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	z, err := w.Exports().Open(w.ctx, "a", "d", "")
	if err != nil {
		t.Fatal(err)
	}
	// Nobody reads it to its end.
	if _, err := io.CopyN(io.Discard, z, 64); err != nil {
		t.Error(err)
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
}
