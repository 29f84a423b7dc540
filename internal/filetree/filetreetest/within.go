package filetreetest

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

// readWithin reads a whole file that is not to lead out of dir.
func (e Env) readWithin(t *testing.T, dir, name string) (string, error) {
	t.Helper()
	r, _, err := e.ReadWithin(t.Context(), dir, name, 0, -1)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

// archiveWithin reads a whole archive; "" is the content of a single file.
func (e Env) archiveWithin(t *testing.T, dir, name string) (content []string, err error) {
	t.Helper()
	r, err := e.ArchiveWithin(t.Context(), dir, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return content, nil
		}
		if err != nil {
			return content, err
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			return content, err
		}
		content = append(content, h.Name+"="+string(b))
	}
}

// A guest plants links that lead out of the directory that is given out.
func attackWithin(t *testing.T, e Env) {
	const dir = "/workspace/out"
	e.put(t, dir+"/f", "given")
	e.put(t, dir+"/sub/g", "given")
	e.put(t, "/workspace/secret", "secret")
	e.put(t, "/workspace/other/secret", "secret")
	if err := os.WriteFile(filepath.Join(e.Home, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.symlink(t, "f", dir+"/in")
	for name, target := range map[string]string{
		"inAbsolute": dir + "/f", "around": "../out/sub/../f", "chain": "in",
	} {
		e.symlink(t, target, dir+"/"+name)
		if got, err := e.readWithin(t, dir, dir+"/"+name); got != "given" || err != nil {
			t.Errorf("ReadWithin of the link %s = %q, %v", name, got, err)
		}
	}
	for name, target := range map[string]string{
		"up": "../secret", "absolute": "/workspace/secret", "home": "/home/sandbox/secret",
		"climbing": strings.Repeat("../", 40) + "workspace/secret", "upLater": "sub/../../secret",
	} {
		e.symlink(t, target, dir+"/"+name)
		_, err := e.readWithin(t, dir, dir+"/"+name)
		wantKind(t, "ReadWithin of the link "+name, err, errs.Forbidden)
		_, err = e.archiveWithin(t, dir, dir+"/"+name)
		wantKind(t, "ArchiveWithin of the link "+name, err, errs.Forbidden)
	}
	for name, target := range map[string]string{"dirUp": "../other", "dirAbsolute": "/workspace/other", "dirRoot": "/", "dirHome": "/home/sandbox"} {
		e.symlink(t, target, dir+"/"+name)
		_, err := e.readWithin(t, dir, dir+"/"+name+"/secret")
		wantKind(t, "ReadWithin below the link "+name, err, errs.Forbidden)
		_, err = e.archiveWithin(t, dir, dir+"/"+name)
		wantKind(t, "ArchiveWithin of the link "+name, err, errs.Forbidden)
	}
	for _, name := range []string{"/workspace/secret", "/workspace", "/", "/etc/passwd", "/workspace/outx", "../../etc/passwd", dir + "/../secret"} {
		_, err := e.readWithin(t, dir, name)
		wantKind(t, "ReadWithin "+name, err, errs.Forbidden)
		_, err = e.archiveWithin(t, dir, name)
		wantKind(t, "ArchiveWithin "+name, err, errs.Forbidden)
	}
	_, err := e.readWithin(t, dir, dir+"/missing")
	wantKind(t, "ReadWithin of nothing", err, errs.NotFound)
	_, err = e.readWithin(t, dir, dir)
	wantKind(t, "ReadWithin of a directory", err, errs.Invalid)
	// The archive of the whole directory has its links and not what they lead to.
	content, err := e.archiveWithin(t, dir, dir)
	if err != nil {
		t.Error(err)
	}
	if all := strings.Join(content, "\n"); strings.Contains(all, "secret") || !strings.Contains(all, "sub/g=given") {
		t.Errorf("ArchiveWithin = %q", all)
	}
	// A directory to stay in that is a link itself is none.
	e.symlink(t, "other", "/workspace/alias")
	if got, err := e.readWithin(t, "/workspace", "/workspace/alias/secret"); got != "secret" || err != nil {
		t.Errorf("ReadWithin through a link inside = %q, %v", got, err)
	}
}

// A guest swaps a directory for a link to the outside while the API reads
// below it.
func attackSwapWithin(t *testing.T, e Env) {
	e.put(t, "/workspace/out/a/b/f", "given")
	e.put(t, "/workspace/other/b/f", "secret")
	e.symlink(t, "/workspace/other", "/workspace/link")
	defer e.swap("/workspace/out/a", "/workspace/link")()
	for range 200 {
		// All of these may fail; none may leave the directory.
		for _, name := range []string{"/workspace/out/a/b/f", "/workspace/out/a/b/../b/f"} {
			if got, err := e.readWithin(t, "/workspace/out", name); err == nil && got != "given" {
				t.Fatalf("ReadWithin %s = %q", name, got)
			}
		}
		content, _ := e.archiveWithin(t, "/workspace/out", "/workspace/out")
		if all := strings.Join(content, "\n"); strings.Contains(all, "secret") {
			t.Fatalf("ArchiveWithin = %q", all)
		}
	}
}
