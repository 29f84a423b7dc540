package filetreetest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Attacks checks that a guest who prepares its files, or changes them while
// the API works on them, gains nothing and stops nothing.
func Attacks(t *testing.T, open func(t *testing.T) Env) {
	for _, tt := range []struct {
		name string
		run  func(t *testing.T, e Env)
	}{
		{"FIFO", attackFIFO},
		{"Socket", attackSocket},
		{"SymlinkOut", attackSymlinkOut},
		{"SymlinkOutOfADirectory", attackWithin},
		{"SymlinkSwappedDuringReadsWithin", attackSwapWithin},
		{"SymlinkSwappedDuringWrites", attackSwap},
		{"SymlinkSwappedDuringReadsAndMoves", attackSwapReads},
		{"HardLinkIsNotWrittenThrough", attackHardLink},
		{"DeepTree", attackDeepTree},
		{"TarAbsolute", attackTar(errs.Invalid, tar.Header{Name: "/etc/x"})},
		{"TarDotDot", attackTar(errs.Invalid, tar.Header{Name: "a/../../x"})},
		{"TarDotDotAtEnd", attackTar(errs.Invalid, tar.Header{Name: "a/.."})},
		{"TarSymlinkThenWrite", attackTar(errs.Invalid,
			tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../out"}, tar.Header{Name: "l/x"})},
		{"TarSymlinkThenWriteAbsolute", attackTarAbsoluteSymlink},
		{"TarSymlinkThenDirectory", attackTar(errs.Invalid,
			tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../out"}, tar.Header{Name: "l/sub/", Typeflag: tar.TypeDir})},
		{"TarHardLinkOut", attackTar(errs.Invalid, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../out/secret"})},
		{"TarHardLinkAbsolute", attackTar(errs.Invalid, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"})},
		{"TarHardLinkOverSymlink", attackTar(errs.Invalid,
			tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../out"},
			tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l/secret"})},
		{"TarHardLinkToSymlink", attackTar(errs.Invalid,
			tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../out/secret"},
			tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l"})},
		{"TarDevice", attackTar(errs.Invalid, tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8})},
		{"TarCharDevice", attackTar(errs.Invalid, tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3})},
		{"TarFIFO", attackTar(errs.Invalid, tar.Header{Name: "p", Typeflag: tar.TypeFifo})},
		{"TarSetUID", attackTarSetUID},
		{"TarHuge", attackTarHuge},
		{"TarSparse", attackTarSparse},
		{"TarDeep", attackTar(errs.Invalid, tar.Header{Name: strings.Repeat("d/", 600) + "x", Format: tar.FormatPAX})},
		{"TarWritesThroughSymlinkOfTheTree", attackTarTreeSymlink},
		{"TarSymlinkIsNotFollowedByItsFile", attackTarReplacesSymlink},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, open(t)) })
	}
}

// everyUse tries everything that could open a name.
func (e Env) everyUse(t *testing.T, name string, kind errs.Kind) {
	t.Helper()
	_, err := e.read(t, name, 0, -1)
	wantKind(t, "Read", err, kind)
	_, err = e.Write(t.Context(), name, strings.NewReader("x"), sandbox.FileWrite{})
	wantKind(t, "Write", err, kind)
	_, err = e.Write(t.Context(), name, strings.NewReader("x"), sandbox.FileWrite{Append: true})
	wantKind(t, "Append", err, kind)
	_, err = e.Archive(t.Context(), name)
	wantKind(t, "Archive", err, kind)
	wantKind(t, "Extract", e.Extract(t.Context(), name, tarOf(t), ""), kind)
	for _, err := range e.ListFiles(t.Context(), name, true) {
		wantKind(t, "ListFiles", err, kind)
	}
	_, err = e.read(t, name+"/x", 0, -1)
	wantKind(t, "Read below", err, kind)
}

func attackFIFO(t *testing.T, e Env) {
	if err := unix.Mkfifo(e.here("/workspace/p"), 0o666); err != nil {
		t.Fatal(err)
	}
	e.symlink(t, "p", "/workspace/l")
	for _, name := range []string{"/workspace/p", "/workspace/l"} {
		e.everyUse(t, name, errs.Invalid)
	}
	f, err := e.Stat(t.Context(), "/workspace/p", true)
	if err != nil || f.Type != sandbox.OtherFile {
		t.Errorf("Stat = %v, %v, want other", f.Type, err)
	}
	if _, err := e.Rename(t.Context(), "/workspace/p", "/workspace/q", false); err != nil {
		t.Errorf("Rename = %v", err)
	}
	if err := e.Remove(t.Context(), "/workspace/q", false); err != nil {
		t.Errorf("Remove = %v", err)
	}
}

func attackSocket(t *testing.T, e Env) {
	// The path of a socket is short; the directory's is not.
	dir, err := os.Open(e.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	l, err := net.Listen("unix", fmt.Sprintf("/proc/self/fd/%d/s", dir.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e.everyUse(t, "/workspace/s", errs.Invalid)
}

func attackSymlinkOut(t *testing.T, e Env) {
	if !e.Confined {
		// The agent sees its sandbox as it is: there is no outside.
		return
	}
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 40)
	for name, target := range map[string]string{
		"passwd":     "/etc/passwd",
		"relative":   up + "etc/passwd",
		"absolute":   filepath.Join(out, "secret"),
		"self":       "/proc/self/environ",
		"fd":         "/proc/self/fd/0",
		"sibling":    "../root",
		"climbing":   filepath.Join("/workspace", up, out, "secret"),
		"homeUp":     "/home/other/x",
		"rootItself": "/",
	} {
		e.symlink(t, target, "/workspace/"+name)
		e.everyUse(t, "/workspace/"+name, errs.WrongState)
		_, err := e.MakeDir(t.Context(), "/workspace/"+name+"/x", 0, true, "")
		wantKind(t, "MakeDir below "+name, err, errs.WrongState)
		_, err = e.Rename(t.Context(), "/workspace/"+name+"/x", "/workspace/y", true)
		wantKind(t, "Rename from below "+name, err, errs.WrongState)
		wantKind(t, "Remove below "+name, e.Remove(t.Context(), "/workspace/"+name+"/x", true), errs.WrongState)
	}
	for _, name := range []string{"/etc/passwd", "/", "/home", "/root/x", "../etc/passwd", "/workspacex", "/home/sandboxes/x"} {
		e.everyUse(t, name, errs.WrongState)
	}
	if got, err := os.ReadFile(filepath.Join(out, "secret")); err != nil || string(got) != "secret" {
		t.Errorf("the file outside holds %q, %v", got, err)
	}
}

// A guest swaps a directory for a link to the outside while the API writes
// below it.
func attackSwap(t *testing.T, e Env) {
	out := t.TempDir()
	e.put(t, "/workspace/dir/f", "x")
	e.symlink(t, out, "/workspace/link")
	stop := e.swap("/workspace/dir", "/workspace/link")
	defer stop()
	archive, err := io.ReadAll(tarOf(t, tar.Header{Name: "dir/t"}, tar.Header{Name: "dir/sub/t"}))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		// All of these may fail; none may act outside.
		_, _ = e.Write(t.Context(), "/workspace/dir/f", strings.NewReader("guest"), sandbox.FileWrite{})
		_ = e.Extract(t.Context(), "/workspace", bytes.NewReader(archive), "")
		_, _ = e.MakeDir(t.Context(), "/workspace/dir/d/e", 0, true, "")
		_ = e.Remove(t.Context(), "/workspace/dir/sub", true)
	}
	stop()
	if !e.Confined {
		// In its own sandbox a guest may link as it likes. Only extraction
		// promises to follow nothing.
		for _, name := range []string{"t", "sub/t"} {
			if _, err := os.Lstat(filepath.Join(out, name)); err == nil {
				t.Errorf("extraction made %s through a symbolic link", name)
			}
		}
		return
	}
	if left, _ := os.ReadDir(out); len(left) != 0 {
		t.Errorf("made outside: %v", left)
	}
}

// swap exchanges two names all the time, until stop has returned.
func (e Env) swap(a, b string) (stop func()) {
	a, b = e.here(a), e.here(b)
	stopped := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for {
			select {
			case <-stopped:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
			}
		}
	})
	return sync.OnceFunc(func() {
		close(stopped)
		swapping.Wait()
	})
}

func attackHardLink(t *testing.T, e Env) {
	e.put(t, "/workspace/precious", "old")
	if err := os.Link(e.here("/workspace/precious"), e.here("/workspace/alias")); err != nil {
		t.Fatal(err)
	}
	e.put(t, "/workspace/alias", "new")
	if got := e.get(t, "/workspace/precious"); got != "old" {
		t.Errorf("a write to one name changed the other to %q", got)
	}
	if err := e.Extract(t.Context(), "/workspace", tarOf(t, tar.Header{Name: "precious"}), ""); err != nil {
		t.Fatal(err)
	}
	if got := e.get(t, "/workspace/alias"); got != "new" {
		t.Errorf("extracting one name changed the other to %q", got)
	}
}

func attackDeepTree(t *testing.T, e Env) {
	plantDeep(t, e.Workspace, "d", 1200)
	var last error
	for _, err := range e.ListFiles(t.Context(), "/workspace", true) {
		last = err
	}
	wantKind(t, "ListFiles", last, errs.TooLarge)
	r, err := e.Archive(t.Context(), "/workspace")
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		r.Close()
	}
	wantKind(t, "Archive", err, errs.TooLarge)
	if _, err := e.Stat(t.Context(), "/workspace/"+strings.Repeat("d/", 1100), false); err != nil {
		t.Errorf("Stat of 1100 levels = %v", err)
	}
	if err := e.Remove(t.Context(), "/workspace/d", true); err != nil {
		t.Errorf("Remove = %v", err)
	}
}

// attackTar extracts hostile entries into /workspace/in and checks that
// nothing appears or changes beside it.
func attackTar(kind errs.Kind, hostile ...tar.Header) func(*testing.T, Env) {
	return func(t *testing.T, e Env) {
		e.put(t, "/workspace/out/secret", "secret")
		before := e.list(t, "/workspace/out", true)
		headers := append([]tar.Header{{Name: "first"}}, hostile...)
		err := e.Extract(t.Context(), "/workspace/in", tarOf(t, headers...), "")
		wantKind(t, "Extract", err, kind)
		if got := e.list(t, "/workspace/out", true); len(got) != len(before) {
			t.Errorf("outside there is now %v, want %v", got, before)
		}
		if got := e.get(t, "/workspace/out/secret"); got != "secret" {
			t.Errorf("outside a file holds %q", got)
		}
		if got := e.list(t, "/workspace", false); len(got) != 2 {
			t.Errorf("the tree holds %v, want in and out", got)
		}
		if got := e.get(t, "/workspace/in/first"); got != "content of first" {
			t.Errorf("what came before the attack holds %q", got)
		}
	}
}

func attackTarAbsoluteSymlink(t *testing.T, e Env) {
	out := t.TempDir()
	attackTar(errs.Invalid,
		tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: out},
		tar.Header{Name: "l/x"})(t, e)
	if left, _ := os.ReadDir(out); len(left) != 0 {
		t.Errorf("made outside: %v", left)
	}
}

func attackTarSetUID(t *testing.T, e Env) {
	if err := e.Extract(t.Context(), "/workspace", tarOf(t, tar.Header{Name: "su", Mode: 0o6755, Uid: 0}), ""); err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(e.here("/workspace/su"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode() != 0o755 {
		t.Errorf("a set-uid file was extracted with mode %v, want 0755", st.Mode())
	}
}

// A header of 512 bytes that promises an exabyte.
func attackTarHuge(t *testing.T, e Env) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "huge", Typeflag: tar.TypeReg, Mode: 0o644, Size: 1 << 60}); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "Extract", e.Extract(t.Context(), "/workspace", &b, ""), errs.Exhausted)
	if got := e.list(t, "/workspace", true); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// A sparse file of 32 MiB in a few hundred bytes must not write 32 MiB.
func attackTarSparse(t *testing.T, e Env) {
	const size = 32 << 20
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	m := "1\n" + fmt.Sprint(size-4) + "\n4\n"
	body := m + strings.Repeat("\x00", 512-len(m)) + "tail"
	if err := w.WriteHeader(&tar.Header{
		Name: "sparse", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body)), Format: tar.FormatPAX,
		PAXRecords: map[string]string{"CUBBY.x": "1"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// The writer refuses the records of sparse files, so they are put in
	// afterwards, in place of others of the same length.
	raw := sparseRecords(t, b.Bytes(), size)
	if err := e.Extract(t.Context(), "/workspace", bytes.NewReader(raw), ""); err != nil {
		t.Fatalf("Extract = %v", err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(e.here("/workspace/sparse"), &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("extracted %d bytes that take %d, want %d that take little", st.Size, st.Blocks*512, size)
	}
	if got, err := e.read(t, "/workspace/sparse", size-4, -1); err != nil || got != "tail" {
		t.Errorf("its end holds %q, %v, want tail", got, err)
	}
}

// sparseRecords replaces the extended header's block with the records of GNU
// sparse format 1.0.
func sparseRecords(t *testing.T, raw []byte, size int64) []byte {
	t.Helper()
	var records string
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=sparse", fmt.Sprintf("GNU.sparse.realsize=%d", size)} {
		n := len(r) + 2
		n += len(fmt.Sprint(n))
		if len(fmt.Sprint(n))+len(r)+2 != n {
			n++
		}
		records += fmt.Sprintf("%d %s\n", n, r)
	}
	raw = bytes.Clone(raw)
	clear(raw[512:1024])
	copy(raw[512:], records)
	copy(raw[124:136], fmt.Sprintf("%011o\x00", len(records)))
	sum := 0
	copy(raw[148:156], "        ")
	for _, c := range raw[:512] {
		sum += int(c)
	}
	copy(raw[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return raw
}

func attackTarTreeSymlink(t *testing.T, e Env) {
	e.put(t, "/workspace/out/secret", "secret")
	e.put(t, "/workspace/in/x", "x")
	e.symlink(t, "../out", "/workspace/in/l")
	wantKind(t, "Extract", e.Extract(t.Context(), "/workspace/in", tarOf(t, tar.Header{Name: "l/secret"}), ""), errs.Invalid)
	if got := e.get(t, "/workspace/out/secret"); got != "secret" {
		t.Errorf("outside a file holds %q", got)
	}
}

func attackTarReplacesSymlink(t *testing.T, e Env) {
	e.put(t, "/workspace/out/secret", "secret")
	err := e.Extract(t.Context(), "/workspace/in", tarOf(t,
		tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../out/secret"},
		tar.Header{Name: "l"}), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := e.get(t, "/workspace/out/secret"); got != "secret" {
		t.Errorf("outside a file holds %q", got)
	}
	if f, err := e.Stat(t.Context(), "/workspace/in/l", false); err != nil || f.Type != sandbox.RegularFile {
		t.Errorf("the link is %v, %v, want replaced by the file", f.Type, err)
	}
}
