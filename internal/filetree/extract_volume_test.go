//go:build !race

package filetree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
)

// endless repeats a piece for ever.
type endless struct {
	piece []byte
	at    int
	read  int64
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.piece[e.at:])
	e.at = (e.at + n) % len(e.piece)
	e.read += int64(n)
	return n, nil
}

// TestEndlessEntriesOfAnArchive: entries that make nothing and take nothing end
// an archive at a bound, as they compress to a thousandth.
func TestEndlessEntriesOfAnArchive(t *testing.T) {
	workspace, home := filetreetest.Dirs(t)
	tree := filetree.Whole(filetree.Options{MapPath: mapTo(workspace, home)})
	var b bytes.Buffer
	if err := tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	// A global header without records, which the writer would not write.
	const kind, sumAt, sumSize = 156, 148, 8
	block := b.Bytes()[:512]
	block[kind] = tar.TypeXGlobalHeader
	copy(block[sumAt:], bytes.Repeat([]byte{' '}, sumSize))
	sum := 0
	for _, c := range block {
		sum += int(c)
	}
	copy(block[sumAt:], fmt.Sprintf("%06o\x00 ", sum))
	entries := &endless{piece: block}
	// Without a bound it ends all the same, later.
	const most = 2 << 30
	err := tree.Extract(t.Context(), "/workspace", io.LimitReader(entries, most), "")
	if !errors.Is(err, errs.TooLarge) || errs.Public(err).Hint == "" {
		t.Errorf("endless entries: %v after %d bytes, want too large and a hint", err, entries.read)
	}
	// What a daemon archived comes back, however many files it has.
	const beyond = (1_000_000 + 1) * 512
	if err := tree.Restore(t.Context(), "/workspace", io.LimitReader(entries, beyond), ""); err != nil {
		t.Errorf("Restore of more entries: %v", err)
	}
}
