//go:build root

package filetree_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/filetree"
)

// The root filesystem goes out with what its files are, and without what is
// mounted over it.
func TestArchiveSystem(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	capabilities := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	if err := errors.Join(
		os.Mkdir(at("d"), 0o755), os.Chmod(at("d"), os.ModeSticky|0o777), os.Mkdir(at("mounted"), 0o755),
		os.WriteFile(at("d/a"), []byte("text"), 0o644), os.Link(at("d/a"), at("d/b")), os.Symlink("/d", at("link")), os.Link(at("link"), at("link2")),
		os.WriteFile(at("suid"), []byte("x"), 0o755), os.Chown(at("suid"), 7, 8), os.Chmod(at("suid"), os.ModeSetuid|0o755),
		os.WriteFile(at("able"), []byte("x"), 0o755), unix.Setxattr(at("able"), "security.capability", []byte(capabilities), 0),
		unix.Mkfifo(at("fifo"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", at("mounted"), "tmpfs", 0)
	if err := os.WriteFile(at("mounted/hidden"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tree := filetree.Whole(filetree.Options{MapPath: func(name string) string { return filepath.Join(dir, name) }})
	r, err := tree.ArchiveSystem(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %s %o %d:%d %d %s %q", h.Typeflag, h.Name, h.Mode, h.Uid, h.Gid, h.Size, h.Linkname, h.PAXRecords["SCHILY.xattr.security.capability"]))
	}
	want := []string{
		fmt.Sprintf("0 able 755 0:0 1  %q", capabilities),
		`5 d/ 1777 0:0 0  ""`, `0 d/a 644 0:0 4  ""`, `1 d/b 644 0:0 0 d/a ""`,
		`2 link 777 0:0 0 /d ""`, `1 link2 777 0:0 0 link ""`, `5 mounted/ 1777 0:0 0  ""`, `0 suid 4755 7:8 1  ""`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the archive has\n%q, want\n%q", got, want)
	}
}
