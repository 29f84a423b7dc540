package hostfiles_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/hostfiles"
)

func uploads(t *testing.T, limit int64) (*hostfiles.Uploads, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "threads")
	u, err := hostfiles.OpenUploads(dir, hostfiles.UploadLimits{Thread: limit}, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return u, dir
}

func TestUploadName(t *testing.T) {
	for name, want := range map[string]string{
		"data.csv": "data.csv", "a/b/c": "a/b/c", "../../etc/passwd": "etc/passwd", "/etc/passwd": "etc/passwd", "./a/./b": "a/b",
		`..\..\evil`: "evil", `C:\Users\x`: "C:/Users/x", "a//b/": "a/b", "a/../b": "a/b", "...": "...", "ü": "ü",
	} {
		if got, err := hostfiles.UploadName(name); got != want || err != nil {
			t.Errorf("UploadName(%q) = %q, %v, want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"", "/", "..", "../..", "a\x00b", "a\nb", "\xff", strings.Repeat("x", 256), strings.Repeat("x/", 600)} {
		if got, err := hostfiles.UploadName(name); !errors.Is(err, errs.Invalid) {
			t.Errorf("UploadName(%q) = %q, %v, want invalid", name, got, err)
		}
	}
}

func FuzzUploadName(f *testing.F) {
	f.Add("../a\\b/./c")
	f.Fuzz(func(t *testing.T, name string) {
		got, err := hostfiles.UploadName(name)
		if err == nil && !filepath.IsLocal(got) {
			t.Errorf("UploadName(%q) = %q", name, got)
		}
	})
}

func TestUploads(t *testing.T) {
	u, dir := uploads(t, 100)
	put := func(tenant, thread, name, content string) (hostfiles.Upload, error) {
		return u.Put(t.Context(), tenant, thread, name, strings.NewReader(content))
	}
	first, err := put("", "t", "sub/f", "one")
	if err != nil || first.Name != "sub/f" || first.Size != 3 || !strings.HasPrefix(first.Path, dir+"/") {
		t.Fatalf("Put = %+v, %v", first, err)
	}
	for _, other := range [][2]string{{"x", "t"}, {"", "../t"}, {"", "T"}} {
		if got, err := put(other[0], other[1], "sub/f", "two"); err != nil || got.Path == first.Path || !strings.HasPrefix(got.Path, dir+"/") {
			t.Errorf("Put of %q = %+v, %v", other, got, err)
		}
		if _, ok, _ := u.Open(other[0], other[1], first.Path); ok {
			t.Errorf("%q can open what is not its own", other)
		}
	}
	src, ok, err := u.Open("", "t", first.Path)
	if !ok || err != nil {
		t.Fatalf("Open = %v, %v", ok, err)
	}
	if b, err := io.ReadAll(src); string(b) != "one" || err != nil {
		t.Errorf("it holds %q, %v", b, err)
	}
	if err := src.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{first.Path + "/../../../../../../x", "sub/f", "/etc/passwd", first.Path + "\x00"} {
		if _, ok, err := u.Open("", "t", name); ok && err == nil {
			t.Errorf("Open %q worked", name)
		}
	}
	for name, kind := range map[string]errs.Kind{"sub": errs.Conflict, "sub/f/g": errs.Conflict, "..": errs.Invalid} {
		if _, err := put("", "t", name, "x"); !errors.Is(err, kind) {
			t.Errorf("Put %q = %v, want %v", name, err, kind)
		}
	}
	// A replaced file does not count twice, and what is too much leaves nothing.
	if _, err := put("", "t", "sub/f", strings.Repeat("x", 100)); err != nil {
		t.Errorf("Put of all that may be: %v", err)
	}
	for _, content := range []string{"x", strings.Repeat("x", 101)} {
		if _, err := put("", "t", "more", content); !errors.Is(err, errs.TooLarge) {
			t.Errorf("Put of too much = %v, want too large", err)
		}
	}
	broken := errors.New("gone")
	if _, err := u.Put(t.Context(), "", "u", "f", iotest.ErrReader(broken)); err == nil {
		t.Error("a broken upload was stored")
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := u.Put(canceled, "", "u", "f", strings.NewReader("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Put for nobody = %v", err)
	}
	var left []string
	if err := filepath.Walk(dir, func(name string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			left = append(left, name)
		}
		return err
	}); err != nil || len(left) != 4 {
		t.Errorf("there are %q, %v, want 4", left, err)
	}
	if err := errors.Join(u.Remove("", "t"), u.Remove("", "t")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(first.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// However many come at once, a thread keeps no more than it may.
func TestUploadsAtOnce(t *testing.T) {
	u, _ := uploads(t, 50)
	var mu sync.Mutex
	var g sync.WaitGroup
	stored := 0
	for i := range 40 {
		g.Go(func() {
			_, err := u.Put(t.Context(), "", "t", fmt.Sprint("f", i), strings.NewReader("0123456789"))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				stored++
			} else if !errors.Is(err, errs.TooLarge) {
				t.Errorf("Put = %v", err)
			}
		})
	}
	g.Wait()
	if stored != 5 {
		t.Errorf("%d were stored, want 5", stored)
	}
}

func TestUploadsWithoutRoom(t *testing.T) {
	full := errs.E(errs.Exhausted, "full")
	u, err := hostfiles.OpenUploads(t.TempDir(), hostfiles.UploadLimits{Thread: 100}, func() error { return full })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.Put(t.Context(), "", "t", "f", strings.NewReader("x")); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Put = %v, want exhausted", err)
	}
}

func TestSweep(t *testing.T) {
	u, _ := uploads(t, 100)
	paths := map[string]string{}
	for _, thread := range []string{"live", "old", "new"} {
		got, err := u.Put(t.Context(), "", thread, "f", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		paths[thread] = got.Path
		if thread != "new" {
			past := time.Now().Add(-3 * time.Hour)
			if err := os.Chtimes(filepath.Dir(filepath.Dir(got.Path)), past, past); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := u.Sweep(map[[2]string]bool{{"", "live"}: true}, time.Now().Add(-2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for thread, want := range map[string]bool{"live": true, "old": false, "new": true} {
		if _, err := os.Stat(paths[thread]); (err == nil) != want {
			t.Errorf("the upload of %s: %v, want it there: %v", thread, err, want)
		}
	}
}

func TestAllow(t *testing.T) {
	for _, dir := range []string{"", "relative", "/", "/..", "./x"} {
		if _, err := hostfiles.Allow([]string{dir}); !errors.Is(err, errs.Invalid) {
			t.Errorf("Allow(%q) = %v, want invalid", dir, err)
		}
	}
	// A directory may be named by a link.
	real := filepath.Join(t.TempDir(), "real")
	if err := os.Mkdir(real, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(real, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	a, err := hostfiles.Allow([]string{link})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{real, link} {
		src, err := a.Open(filepath.Join(dir, "f"))
		if err != nil {
			t.Errorf("Open below %s: %v", dir, err)
			continue
		}
		src.Close()
	}
}
