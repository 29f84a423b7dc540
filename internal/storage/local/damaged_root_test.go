//go:build root

package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// rawDisk is the image of a disk that is not mounted.
type rawDisk struct {
	t     *testing.T
	image string
}

const rawBlock = 4096

func (r rawDisk) write(at int64, b []byte) {
	r.t.Helper()
	f, err := os.OpenFile(r.image, os.O_WRONLY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		r.t.Fatal(err)
	}
}

func (r rawDisk) number(at int64) int64 {
	r.t.Helper()
	f, err := os.Open(r.image)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	var b [4]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		r.t.Fatal(err)
	}
	return int64(binary.LittleEndian.Uint32(b[:]))
}

// Group descriptors begin in the second block: the bitmaps of blocks and
// inodes, then the table of inodes.
func (r rawDisk) blockBitmap() int64    { return r.number(rawBlock) * rawBlock }
func (r rawDisk) inodeBitmap() int64    { return r.number(rawBlock+4) * rawBlock }
func (r rawDisk) inode(n int64) int64   { return r.number(rawBlock+8)*rawBlock + (n-1)*256 }
func (r rawDisk) extent(n int64) int64  { return r.number(r.inode(n)+0x28+12+8) * rawBlock }
func (r rawDisk) truncate(bytes int64)  { check(r.t, os.Truncate(r.image, bytes)) }
func (r rawDisk) set(field, val string) { r.debugfs("ssv " + field + " " + val) }

// debugfs changes the image and makes the checksums right again.
func (r rawDisk) debugfs(request string) string {
	return r.run("debugfs", "-w", "-R", request, r.image)
}

func (r rawDisk) run(name string, args ...string) string {
	r.t.Helper()
	out, err := exec.Command(program(name), args...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// useElsewhere makes it look as if another host had the file system mounted,
// whose protection against that is on.
func (r rawDisk) useElsewhere() {
	r.t.Helper()
	b, err := os.ReadFile(r.image)
	check(r.t, err)
	super := b[superAt:]
	at := int64(binary.LittleEndian.Uint64(super[0x168:])) * rawBlock
	mmp := b[at : at+1024]
	binary.LittleEndian.PutUint32(mmp[4:], 1) // the sequence number of who uses it
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	seed := crc32.Checksum(super[0x68:0x78], castagnoli) // of its UUID
	binary.LittleEndian.PutUint32(mmp[1020:], ^crc32.Update(seed, castagnoli, mmp[:1020]))
	r.write(at, mmp)
}

// find gives the number of the inode of a path on the disk.
func (r rawDisk) find(path string) (n int64) {
	r.t.Helper()
	_, text, _ := strings.Cut(r.debugfs("stat "+path), "Inode: ")
	if _, err := fmt.Sscan(text, &n); err != nil {
		r.t.Fatalf("no inode of %s: %v", path, err)
	}
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var garbage = bytes.Repeat([]byte{0xa5, 0x5a, 0xff, 0x01}, rawBlock/4)

// Whatever is on a disk, the daemon answers in time and says what is wrong,
// the other disks go on, and the disk can be removed.
func TestDamagedDiskIsToldAndRemoved(t *testing.T) {
	const (
		refused = "refused" // no mount is tried, or the kernel refuses it
		either  = "either"  // as the kernel and the checker see fit
	)
	const journal, root, mib = 8, 2, 1 << 20
	for _, c := range []struct {
		name, want string
		damage     func(r rawDisk)
	}{
		{"superblock of zeros", refused, func(r rawDisk) { r.write(superAt, make([]byte, superSize)) }},
		{"wrong magic number", refused, func(r rawDisk) { r.write(superAt+superMagic, []byte{1, 2}) }},
		{"superblock with a wrong checksum", either, func(r rawDisk) { r.write(superAt+0x78, garbage[:16]) }},
		{"everything is garbage", refused, func(r rawDisk) { r.write(0, bytes.Repeat(garbage, 512)) }},
		{"empty image", refused, func(r rawDisk) { r.truncate(0) }},
		{"truncated within the superblock", refused, func(r rawDisk) { r.truncate(1500) }},
		{"truncated image", refused, func(r rawDisk) { r.truncate(3 * mib) }},
		{"more blocks than the image", refused, func(r rawDisk) { r.set("blocks_count", "0xfffffff0") }},
		{"blocks without end", refused, func(r rawDisk) { r.write(superAt+superBlocksHigh, garbage[:4]) }},
		{"blocks of 4 TiB", refused, func(r rawDisk) { r.write(superAt+superLogBlock, []byte{32, 0, 0, 0}) }},
		{"unknown features", refused, func(r rawDisk) { r.set("feature_incompat", "0xf00002c2") }},
		{"unknown features that allow reading", either, func(r rawDisk) { r.set("feature_ro_compat", "0xf000046b") }},
		{"no inodes in a group", either, func(r rawDisk) { r.set("inodes_per_group", "0") }},
		{"a journal on another device", refused, func(r rawDisk) { r.set("journal_inum", "0"); r.set("journal_dev", "0x700") }},
		{"a mount that waits for another host", refused, func(r rawDisk) {
			r.run("tune2fs", "-O", "mmp", "-E", "mmp_update_interval=300", r.image)
			r.useElsewhere()
		}},
		{"a fault ends in a panic", either, func(r rawDisk) { r.set("errors", "3"); r.write(r.inode(root)+4, garbage[:4]) }},
		{"group descriptors", either, func(r rawDisk) { r.write(rawBlock, garbage) }},
		{"group descriptors of zeros", either, func(r rawDisk) { r.write(rawBlock, make([]byte, rawBlock)) }},
		{"journal superblock", either, func(r rawDisk) { r.write(r.extent(journal), garbage) }},
		{"journal inode", either, func(r rawDisk) { r.debugfs("clri <8>") }},
		{"a journal of garbage to replay", either, func(r rawDisk) {
			at := r.extent(journal)
			r.write(at+rawBlock, bytes.Repeat(garbage, 8))
			r.write(at+0x1c, []byte{0, 0, 0, 1}) // it begins in its first block
			r.debugfs("feature needs_recovery")
		}},
		{"root inode", either, func(r rawDisk) { r.debugfs("clri <2>") }},
		{"root inode is a file", either, func(r rawDisk) { r.debugfs("sif <2> mode 0100644") }},
		{"root inode with a wrong checksum", either, func(r rawDisk) { r.write(r.inode(root)+4, garbage[:4]) }},
		{"inode with a wrong checksum", either, func(r rawDisk) { r.write(r.inode(r.find("/workspace/plain"))+0x28, garbage[:60]) }},
		{"workspace is a link to the host", refused, func(r rawDisk) {
			r.debugfs("unlink /workspace")
			r.debugfs("symlink /workspace /etc")
		}},
		{"workspace is a file", either, func(r rawDisk) { r.debugfs("sif /workspace mode 0100644") }},
		{"workspace is a device", either, func(r rawDisk) { r.debugfs("sif /workspace mode 020666") }},
		{"a directory is its own child", either, func(r rawDisk) { r.debugfs(fmt.Sprintf("ln <%d> /workspace/dir/sub/up", r.find("/workspace/dir"))) }},
		{"the root is its own child", either, func(r rawDisk) { r.debugfs("ln <2> /workspace/dir/sub/root") }},
		{"a name leads to no inode", either, func(r rawDisk) { r.debugfs("ln <3999999> /workspace/dir/none") }},
		{"a name leads to the journal", either, func(r rawDisk) { r.debugfs("ln <8> /workspace/journal") }},
		{"directory block", either, func(r rawDisk) { r.write(r.extent(r.find("/workspace/dir")), garbage) }},
		{"directory block of zeros", either, func(r rawDisk) { r.write(r.extent(r.find("/workspace/dir/sub")), make([]byte, rawBlock)) }},
		{"bitmaps", either, func(r rawDisk) { r.write(r.blockBitmap(), garbage); r.write(r.inodeBitmap(), garbage) }},
		{"bitmaps that are full of free", either, func(r rawDisk) { r.write(r.blockBitmap(), make([]byte, rawBlock)) }},
		{"table of inodes", either, func(r rawDisk) { r.write(r.inode(1), bytes.Repeat(garbage, 64)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := realDisks(t, Config{})
			disk, other := mustCreate(t, d, storage.MinBytes), mustCreate(t, d, storage.MinBytes)
			fill(t, disk.Dir)
			check(t, d.unmountAlone(t.Context(), disk.UID))
			nothingBelow(t, d.dir(disk.UID))
			c.damage(rawDisk{t, d.image(disk.UID)})

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 { // the second time after a restart of the daemon
				said := inTime(t, ctx, func() []error { return everyUse(ctx, d, disk.UID) })
				if c.want == refused && len(said) == 0 {
					t.Error("the disk is used as if nothing were wrong with it")
				}
				for _, err := range said {
					told(t, err, c.want == refused)
				}
				check(t, d.unmountAlone(ctx, disk.UID))
				nothingBelow(t, d.dir(disk.UID))
				check(t, os.WriteFile(filepath.Join(other.Dir, "workspace", "x"), []byte("x"), 0o600))
				again, err := New(d.cfg)
				check(t, err)
				d = again
			}
			_, _ = d.mountAlone(ctx, disk.UID)
			if _, err := d.Remove(ctx, disk.UID); err != nil {
				t.Errorf("Remove = %v", err)
			}
			if _, err := os.Lstat(d.dir(disk.UID)); err == nil {
				t.Error("the disk's directory is left")
			}
			nothingBelow(t, d.dir(disk.UID))
		})
	}
}

// fill makes a directory of several blocks with an index, one of one block,
// and a file.
func fill(t *testing.T, mnt string) {
	t.Helper()
	sub := filepath.Join(mnt, "workspace", "dir", "sub")
	check(t, os.MkdirAll(sub, 0o755))
	for i := range 300 {
		check(t, os.WriteFile(filepath.Join(mnt, "workspace", "dir", fmt.Sprintf("a file of number %d", i)), nil, 0o644))
	}
	check(t, os.WriteFile(filepath.Join(sub, "leaf"), []byte("leaf"), 0o644))
	check(t, os.WriteFile(filepath.Join(mnt, "workspace", "plain"), make([]byte, 100<<10), 0o644))
}

// everyUse is what the daemon does with the disk of a stopped sandbox, and
// what went wrong.
func everyUse(ctx context.Context, d *Disks, uid sandbox.UID) (said []error) {
	say := func(err error) {
		if err != nil {
			said = append(said, err)
		}
	}
	disk, err := d.mountAlone(ctx, uid)
	say(err)
	_, err = d.Usage(ctx, uid)
	say(err)
	tree, err := d.filesAlone(ctx, uid)
	if err != nil {
		return append(said, err)
	}
	var st unix.Statfs_t
	say(unix.Statfs(disk.Dir, &st))
	if want := int64(unix.ST_NOSUID | unix.ST_NODEV); st.Flags&want != want {
		say(fmt.Errorf("mounted with the flags %#x", st.Flags))
	}
	say(remountsReadOnly(disk.Dir))
	for _, name := range []string{"/workspace", "/workspace/dir", "/workspace/dir/sub", "/home/sandbox"} {
		_, err := tree.Stat(ctx, name, true)
		say(err)
		for _, err := range tree.ListFiles(ctx, name, true) {
			say(err)
		}
		r, err := tree.Archive(ctx, name)
		say(err)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			say(err)
			say(r.Close())
		}
	}
	for _, name := range []string{"plain", "dir/sub/leaf", "dir/a file of number 7", "dir/none", "journal"} {
		r, _, err := tree.Read(ctx, name, 0, -1)
		say(err)
		if err == nil {
			_, err = io.Copy(io.Discard, r)
			say(err)
			say(r.Close())
		}
	}
	for _, name := range []string{"new", "dir/new", "dir/sub/new"} {
		_, err := tree.Write(ctx, name, bytes.NewReader(make([]byte, 64<<10)), sandbox.FileWrite{})
		say(err)
	}
	_, err = tree.MakeDir(ctx, "dir/deep/er", 0o755, true, "")
	say(err)
	_, err = tree.Rename(ctx, "plain", "dir/plain", true)
	say(err)
	say(tree.Remove(ctx, "dir", true))
	return said
}

// remountsReadOnly says whether a fault of the disk makes it read-only,
// whatever its superblock asks for.
func remountsReadOnly(mnt string) error {
	var st unix.Stat_t
	if err := unix.Stat(mnt, &st); err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/fs/ext4/loop" + fmt.Sprint(unix.Minor(st.Dev)) + "/options")
	if err == nil && !strings.Contains(string(b), "errors=remount-ro\n") {
		err = fmt.Errorf("mounted with the options %q", b)
	}
	return err
}

// told says whether an error is one for the user: classified, with nothing of
// the host and of others in it.
func told(t *testing.T, err error, refused bool) {
	t.Helper()
	info := errs.Public(err)
	text := info.Message + " " + info.Hint
	switch {
	case info.Kind == errs.Internal:
		t.Errorf("not classified: %v", err)
	case info.Kind == errs.Timeout, info.Kind == errs.Canceled:
		t.Errorf("not in time: %v", err)
	case refused && (info.Kind != errs.Unavailable || !strings.Contains(info.Message, "is damaged") || info.Hint == ""):
		t.Errorf("said %q, want that the disk is damaged, and what to do", text)
	}
	for _, foreign := range []string{os.TempDir(), "/dev/", "loop", "cleaning", "bad message", "superblock"} {
		if strings.Contains(text, foreign) {
			t.Errorf("the user is told %q", text)
		}
	}
}

// inTime fails the test when the kernel keeps a use for itself.
func inTime(t *testing.T, ctx context.Context, use func() []error) []error {
	t.Helper()
	done := make(chan []error, 1)
	go func() { done <- use() }()
	select {
	case said := <-done:
		return said
	case <-time.After(time.Minute + 10*time.Second):
		t.Fatalf("no answer: %v", context.Cause(ctx))
		return nil
	}
}
