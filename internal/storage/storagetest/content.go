package storagetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sparseBytes is the size of a file that is one hole but for its middle.
const sparseBytes = 1 << 30

// fill puts one of each kind of entry into the workspace of a disk.
func fill(t *testing.T, dir string) {
	t.Helper()
	root := os.Geteuid() == 0
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, "workspace", name) }
	ok(os.WriteFile(at("small"), []byte("small"), 0o640))
	ok(os.WriteFile(at("empty"), nil, 0o600))
	ok(os.WriteFile(at("big"), []byte(strings.Repeat("0123456789abcdef", 1<<16)), 0o644))
	ok(os.WriteFile(at("name\nwith \xff bytes"), []byte("x"), 0o644))
	ok(os.Mkdir(at("dir"), 0o750))
	ok(os.MkdirAll(at("dir/empty"), 0o700))
	ok(os.Link(at("small"), at("dir/linked")))
	ok(os.Link(at("small"), at("linked")))
	ok(os.Symlink("../../../etc/passwd", at("dangling")))
	ok(os.Symlink(strings.Repeat("l", 3000), at("long-link")))
	ok(unix.Mkfifo(at("fifo"), 0o622))
	ok(unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0))
	sparse, err := os.Create(at("sparse"))
	ok(err)
	ok(sparse.Truncate(sparseBytes))
	_, err = sparse.WriteAt([]byte("middle"), sparseBytes/2)
	ok(errors.Join(err, sparse.Sync(), sparse.Close()))
	for _, name := range []string{"small", "dir"} {
		if err := unix.Setxattr(at(name), "user.kept", []byte("of "+name), 0); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			t.Fatal(err)
		}
	}
	ok(os.Chmod(at("empty"), 0o400|fs.ModeSetuid))
	if root {
		ok(os.Lchown(at("big"), 1234, 5678))
		ok(os.Lchown(at("dangling"), 1000, 1000))
		ok(unix.Mknod(at("device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
		// Capabilities are an attribute that a change of owner drops.
		capability := []byte{1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		ok(unix.Setxattr(at("big"), "security.capability", capability, 0))
	}
	then := time.Unix(1_000_000_000, 123_456_789)
	for _, name := range []string{"small", "fifo", "dir/empty", "dir"} {
		ok(os.Chtimes(at(name), then, then))
	}
}

// describe says of each entry below a directory all that a copy keeps.
func describe(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	links := map[uint64]string{} // the first name of each inode
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[name], err = describeOne(path, name, links)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func describeOne(path, name string, links map[uint64]string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "", err
	}
	said := fmt.Sprintf("mode %o owner %d:%d modified %d.%d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if first, ok := links[st.Ino]; ok {
			return said + " linked to " + first, nil
		}
		links[st.Ino] = name
		content, err := digest(path, st.Size)
		if err != nil {
			return "", err
		}
		said += fmt.Sprintf(" %d links size %d %s", st.Nlink, st.Size, content)
		if st.Blocks*512 < st.Size/2 {
			said += " sparse"
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(path)
		return said + " to " + target, err
	case unix.S_IFCHR, unix.S_IFBLK:
		return said + fmt.Sprintf(" device %d", st.Rdev), nil
	case unix.S_IFDIR:
	default:
		return said, nil
	}
	attributes, err := describeAttributes(path)
	return said + attributes, err
}

// digest is the content of a file; of one that is large, that of its middle.
func digest(path string, size int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, min(size, 4<<20))
	if _, err := f.ReadAt(b, size/2-int64(len(b)/2)); err != nil && size > 0 {
		return "", err
	}
	return fmt.Sprintf("sum %x", sha256.Sum256(b)), nil
}

func describeAttributes(path string) (string, error) {
	b := make([]byte, 4096)
	n, err := unix.Listxattr(path, b)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	names := strings.FieldsFunc(string(b[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(names)
	var said strings.Builder
	for _, name := range names {
		value := make([]byte, 4096)
		n, err := unix.Getxattr(path, name, value)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&said, " %s=%q", name, value[:n])
	}
	return said.String(), nil
}
