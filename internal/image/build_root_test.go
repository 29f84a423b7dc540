//go:build root

package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/images"
)

// testImageDir is where make test has built the base image.
func testImageDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("CUBBY_TEST_IMAGE_DIR")
	if dir == "" {
		t.Fatal("CUBBY_TEST_IMAGE_DIR is not set: run make test, or build the base image and name its directory")
	}
	return dir
}

// tinyRecipe builds in seconds, from packages that the base image has, too.
func tinyRecipe(t *testing.T) fs.FS {
	t.Helper()
	base, err := loadRecipe(images.FS(), "base")
	if err != nil {
		t.Fatal(err)
	}
	sources, err := json.Marshal(base.Sources)
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{
		"tiny/image.toml":                {Data: []byte("suite = \"" + base.Suite + "\"\nsources = " + string(sources) + "\npackages = [\"ca-certificates\", \"jq\", \"openssl\"]\nexclude = [\"/usr/share/doc/*\"]\n[env]\nA = \"1\"\n")},
		"tiny/setup.sh":                  {Data: []byte("echo made > /etc/made\n: > /etc/hostname\n: > /etc/resolv.conf\nchmod 0644 /etc/hostname /etc/resolv.conf\nrm -rf /var/log/* /var/cache/ldconfig/aux-cache /var/lib/dpkg/*-old /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow-\n")},
		"tiny/files/usr/local/bin/hello": {Data: []byte("#!/bin/sh\necho hello\n")},
		"tiny/files/etc/plain":           {Data: []byte("plain\n")},
	}
}

// build runs in a process of its own, so that its network can be taken away.
const victim = "CUBBY_TEST_BUILD_IN"

func TestBuildVictim(t *testing.T) {
	dir := os.Getenv(victim)
	if dir == "" {
		return // not a test by itself
	}
	s, err := Open(dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.recipes = tinyRecipe(t)
	s.sync = func(string) error { return nil }
	if _, err := s.Build(t.Context(), "tiny", nil); err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, cacheName, "tiny", "build.log"))
		t.Fatalf("Build = %v\n%s", err, log)
	}
}

func buildTiny(t *testing.T, dir string, offline bool) Image {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBuildVictim$", "-test.v")
	cmd.Env = append(os.Environ(), victim+"="+dir)
	if offline {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build (offline: %v) = %v\n%s", offline, err, out)
	}
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Resolve(t.Context(), "tiny")
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// With a warm cache a build needs no network, and gives the same image again.
func TestBuildOffline(t *testing.T) {
	dir := t.TempDir()
	first := buildTiny(t, dir, warmCache(t, filepath.Join(dir, cacheName, "tiny")))
	if again := buildTiny(t, dir, true); again.Digest != first.Digest || !again.CreatedAt.Equal(first.CreatedAt) {
		t.Errorf("the same inputs were built again: %+v, then %+v", first, again)
	}
	for path, mode := range map[string]fs.FileMode{"usr/local/bin/hello": 0o755, "etc/plain": 0o644, "etc/made": 0o644, "usr/bin/jq": 0o755} {
		if info, err := os.Lstat(filepath.Join(first.Dir, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want mode %v", path, info, err, mode)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(first.Dir, "var/cache/apt/archives/*.deb")); len(left) > 0 {
		t.Errorf("%d packages were left in the image", len(left))
	}
	if entries, _ := filepath.Glob(filepath.Join(dir, tmpPrefix+"*")); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// warmCache fills the cache of a build with that of the base image, which has
// all that the tiny one needs. Where that is missing, the first build fetches.
func warmCache(t *testing.T, cache string) (warm bool) {
	t.Helper()
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	from := filepath.Join(testImageDir(t), cacheName, "base")
	link := exec.Command("sh", "-c", `cp -al "$@" 2>/dev/null || cp -a "$@"`, "sh", filepath.Join(from, "debs"), filepath.Join(from, "lists"), cache)
	out, err := link.CombinedOutput()
	if err != nil {
		t.Logf("no cache of the base image: %s", out)
	}
	return err == nil
}

// Owners are kept, and what only root can make is kept or left out on purpose.
func TestImportAsRoot(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range []*tar.Header{
		{Name: "bin/su", Typeflag: tar.TypeReg, Mode: 0o4755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"}},
		{Name: "etc/shadow", Typeflag: tar.TypeReg, Mode: 0o640, Gid: 42},
		{Name: "home/u/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 1234, Gid: 5678},
		{Name: "home/u/l", Typeflag: tar.TypeSymlink, Linkname: "/etc", Uid: 1234, Gid: 5678},
		{Name: "dev/sda", Typeflag: tar.TypeBlock, Mode: 0o666, Devmajor: 8},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.Import(t.Context(), &b, 0, "t", "one", nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][3]uint32{
		"bin/su": {0o104755, 0, 0}, "etc/shadow": {0o100640, 0, 42}, "home/u": {0o40700, 1234, 5678}, "home/u/l": {0o120777, 1234, 5678},
		"workspace": {0o40755, 1000, 1000}, "home/sandbox": {0o40755, 1000, 1000}, "tmp": {0o41777, 0, 0},
	} {
		var st unix.Stat_t
		err := unix.Lstat(filepath.Join(img.Dir, path), &st)
		if got := [3]uint32{st.Mode, st.Uid, st.Gid}; err != nil || got != want {
			t.Errorf("%s: %o, %v, want %o", path, got, err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(img.Dir, "dev/sda")); !os.IsNotExist(err) {
		t.Errorf("dev/sda: %v, want it left out", err)
	}
	if n, err := unix.Getxattr(filepath.Join(img.Dir, "bin/su"), "security.capability", nil); err == nil {
		t.Errorf("bin/su has capabilities (%d bytes), want none", n)
	}
	if info, err := os.Stat(filepath.Dir(img.Dir)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the image's directory: %v, %v, want root's alone", info, err)
	}
}

// The capabilities of files stay in a build, as the kernel writes them for the
// host's own, and nothing else that calls itself so.
func TestASystemKeepsCapabilities(t *testing.T) {
	good := "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, value := range map[string]string{"bin/good": good, "bin/short": good[:8], "bin/other": "\x01\x00\x00\x03" + good[4:] + "\x00\x00\x00\x00"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, PAXRecords: map[string]string{capabilityRecord: value}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	img, err := s.ImportSystem(t.Context(), &b, Prepared{Image: Image{Dir: t.TempDir()}, about: about{name: "mine"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"good": true, "short": false, "other": false} {
		value := make([]byte, 64)
		n, err := unix.Getxattr(filepath.Join(img.Dir, "bin", name), capabilityAttribute, value)
		if has := err == nil; has != want || has && string(value[:n]) != good {
			t.Errorf("%s has %q, %v, want any: %v", name, value[:max(n, 0)], err, want)
		}
	}
}

// A killed build leaves mounts of the host in its stage. Clearing it away must
// not walk into them.
func TestStaleMountsAreNotEntered(t *testing.T) {
	precious := t.TempDir()
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.newStage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(g.rootfs(), "dev")
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(precious, target, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	g.unlock()
	if _, err := Open(s.dir, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
		t.Errorf("the file behind the mount: %v", err)
	}
	if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
		t.Errorf("the stage: %v, want it gone", err)
	}
}
