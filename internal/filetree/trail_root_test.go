//go:build root

package filetree_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A link of the sandbox's user made a file of that user's out of what a caller wrote to
// the link: in /usr/local/bin, which is on root's PATH.
func TestALinkOfAnotherUserLeadsOnlyWhereThatUserMayWrite(t *testing.T) {
	const user, other = 1000, 1001
	top := t.TempDir()
	made := func(name string, mode os.FileMode, uid int) string {
		t.Helper()
		dir := filepath.Join(top, name)
		for _, err := range []error{os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid), os.Chmod(dir, mode)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	roots, open, theirs, users := made("roots", 0o755, 0), made("open", os.ModeSticky|0o777, 0), made("theirs", 0o755, other), made("users", 0o755, user)
	group := made("group", 0o775, 0)
	workspace := made("workspace", 0o755, user)
	file := func(name string, uid int) {
		t.Helper()
		if err := errors.Join(os.WriteFile(name, []byte("old"), 0o644), os.Chown(name, uid, uid)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{roots, open, theirs, users, group} {
		file(filepath.Join(dir, "roots"), 0)
		file(filepath.Join(dir, "users"), user)
	}
	if err := os.Chown(group, 0, user); err != nil {
		t.Fatal(err)
	}
	link := func(name, to string, uid int) string {
		t.Helper()
		at := filepath.Join(workspace, name)
		_ = os.Remove(at)
		if err := errors.Join(os.Symlink(to, at), os.Lchown(at, uid, uid)); err != nil {
			t.Fatal(err)
		}
		return at
	}
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	if err := errors.Join(tw.WriteHeader(&tar.Header{Name: "unpacked", Mode: 0o755, Typeflag: tar.TypeReg}), tw.Close()); err != nil {
		t.Fatal(err)
	}
	tree := filetree.Whole(filetree.Options{})
	write := func(name string, w sandbox.FileWrite) error {
		_, err := tree.Write(t.Context(), name, strings.NewReader("new"), w)
		return err
	}
	for name, change := range map[string]func(dir string) error{
		"a new file through a link to it":  func(dir string) error { return write(link("l", dir+"/new", user), sandbox.FileWrite{Parents: true}) },
		"a new file that is appended to":   func(dir string) error { return write(link("l", dir+"/new2", user), sandbox.FileWrite{Append: true}) },
		"a new file in a linked directory": func(dir string) error { return write(link("l", dir, user)+"/new3", sandbox.FileWrite{}) },
		"a file of root's": func(dir string) error {
			return write(link("l", dir+"/roots", user), sandbox.FileWrite{User: "sandbox"})
		},
		"the end of a file of root's": func(dir string) error {
			return write(link("l", dir+"/roots", user), sandbox.FileWrite{Append: true, Mode: 0o666})
		},
		"through two links": func(dir string) error {
			link("m", dir, 0)
			return write(link("l", "m/new4", user), sandbox.FileWrite{})
		},
		"through a link of root's in theirs": func(dir string) error { return write(link("l", dir+"/new5", 0), sandbox.FileWrite{}) },
		"through a directory and dots": func(dir string) error {
			return write(link("l", "../users/../"+filepath.Base(dir)+"/new6", user), sandbox.FileWrite{})
		},
		"parents": func(dir string) error {
			return write(link("l", dir, user)+"/p/q/new", sandbox.FileWrite{Parents: true})
		},
		"a directory": func(dir string) error {
			_, err := tree.MakeDir(t.Context(), link("l", dir, user)+"/d", 0, false, "")
			return err
		},
		"a directory and its parents": func(dir string) error {
			_, err := tree.MakeDir(t.Context(), link("l", dir, user)+"/r/s", 0, true, "")
			return err
		},
		"a move there": func(dir string) error {
			file(workspace+"/mine", user)
			_, err := tree.Rename(t.Context(), workspace+"/mine", link("l", dir, user)+"/moved", true)
			return err
		},
		"an archive": func(dir string) error {
			return tree.Extract(t.Context(), link("l", dir, user), bytes.NewReader(archive.Bytes()), "")
		},
		"an archive and its directory": func(dir string) error {
			return tree.Extract(t.Context(), link("l", dir, user)+"/x/y", bytes.NewReader(archive.Bytes()), "")
		},
		"a move from there": func(dir string) error {
			_, err := tree.Rename(t.Context(), link("l", dir, user)+"/roots", workspace+"/took", true)
			file(dir+"/roots", 0)
			return err
		},
		"a removal": func(dir string) error {
			err := tree.Remove(t.Context(), link("l", dir, user)+"/roots", false)
			file(dir+"/roots", 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, dir := range []string{roots, theirs} {
				before, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				if err := change(dir); !errors.Is(err, errs.Forbidden) {
					t.Errorf("in %s: %v", filepath.Base(dir), err)
				}
				after, err := os.ReadDir(dir)
				if err != nil || len(after) != len(before) {
					t.Errorf("%s has %v, %v; it had %v", filepath.Base(dir), after, err, before)
				}
			}
			if err := change(users); err != nil && !strings.Contains(name, "the end of") {
				t.Errorf("in the user's own: %v", err)
			}
			if err := change(group); err != nil && !strings.Contains(name, "root's") && name != "through two links" {
				t.Errorf("in the group's: %v", err)
			}
			sticky := errors.Is(change(open), errs.Forbidden)
			if want := strings.Contains(name, "of root's") && !strings.Contains(name, "link of") || strings.Contains(name, "from") || strings.Contains(name, "removal"); sticky != want {
				t.Errorf("in a sticky directory it is refused: %v, want %v", sticky, want)
			}
		})
	}
	if err := write(link("l", roots+"/new9", user), sandbox.FileWrite{Maker: "root"}); err != nil {
		t.Errorf("for root: %v", err)
	}
	for name, at := range map[string]string{"root's own link": filepath.Join(top, "link") + "/new7", "no link": roots + "/new8"} {
		_ = os.Symlink(roots, filepath.Join(top, "link"))
		if err := write(at, sandbox.FileWrite{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
