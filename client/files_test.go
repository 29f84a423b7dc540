package client_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
)

func TestReadRanges(t *testing.T) {
	content := []byte("0123456789")
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
	tests := []struct {
		offset, length int64
		want           string
	}{{0, -1, "0123456789"}, {3, -1, "3456789"}, {3, 4, "3456"}, {0, 0, ""}, {8, 100, "89"}}
	for _, tt := range tests {
		r, err := c.Files("a").OpenRange(t.Context(), "x", tt.offset, tt.length)
		if err != nil {
			t.Errorf("OpenRange(%d, %d): %v", tt.offset, tt.length, err)
			continue
		}
		got, err := io.ReadAll(r)
		_ = r.Close()
		if string(got) != tt.want || err != nil {
			t.Errorf("OpenRange(%d, %d) = %q, %v, want %q", tt.offset, tt.length, got, err, tt.want)
		}
	}
}

func TestFileMode(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"entries":[{"path":"/a","name":"a","type":"file","mode":"0644"},{"path":"/b","name":"b","type":"dir","mode":493}]}`)
	})
	list, err := c.Files("a").List(t.Context(), "/", false)
	if err != nil {
		t.Fatal(err)
	}
	if list[0].Mode != 0o644 || list[1].Mode != 0o755 || list[1].Type != client.Directory {
		t.Errorf("got %+v", list)
	}
}

func TestWatch(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		sse(w, 0, "ping", "{}")
		sse(w, 0, "change", `{"path":"/workspace/a","op":"create","time":"2026-01-02T03:04:05Z"}`)
	})
	var got []string
	var last error
	for change, err := range c.Files("a").Watch(t.Context(), ".", true) {
		if err != nil {
			last = err
			break
		}
		got = append(got, change.Op+" "+change.Path)
	}
	if want := []string{"create /workspace/a"}; !cmp.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
	if !errors.Is(last, client.Unreachable) {
		t.Errorf("a broken watch ended with %v, want %v", last, client.Unreachable)
	}
}

// archives keeps what was uploaded and gives it back.
func archives(t *testing.T, stored *[]byte) *client.Client {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			*stored, _ = io.ReadAll(r.Body)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write(*stored)
	})
}

func TestDirectoriesRoundTrip(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "deep", "er")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(from, "sub", "empty"), 0o755))
	must(os.WriteFile(filepath.Join(from, "sub", "run.sh"), []byte("#!/bin/sh\n"), 0o755))
	must(os.WriteFile(filepath.Join(from, "big"), bytes.Repeat([]byte("x"), 1<<20), 0o600))
	must(os.Symlink("sub/run.sh", filepath.Join(from, "link")))
	must(os.Chmod(filepath.Join(from, "sub"), 0o555))
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(from, "sub"), 0o755)
		_ = os.Chmod(filepath.Join(to, "sub"), 0o755)
	})

	var stored []byte
	c := archives(t, &stored)
	must(c.Files("a").UploadDir(t.Context(), from, "x"))
	must(c.Files("a").DownloadDir(t.Context(), "x", to))
	if diff := cmp.Diff(describe(t, from), describe(t, to)); diff != "" {
		t.Errorf("the copy differs (-want +got):\n%s", diff)
	}
	if err := c.Files("a").DownloadDir(t.Context(), "x", to); err != nil {
		t.Errorf("a second download over the first: %v", err)
	}
}

func TestUploadOfMissingDir(t *testing.T) {
	var stored []byte
	c := archives(t, &stored)
	if err := c.Files("a").UploadDir(t.Context(), filepath.Join(t.TempDir(), "no"), "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want %v", err, fs.ErrNotExist)
	}
}

func TestUploadRefused(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 404, `{"error":{"code":"not_found","message":"no such sandbox"}}`)
	})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Files("a").UploadDir(t.Context(), dir, "x"); !errors.Is(err, client.NotFound) {
		t.Errorf("got %v, want %v", err, client.NotFound)
	}
}

// describe lists a tree: names, modes, sizes, link targets.
func describe(t *testing.T, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		m[rel] = info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			m[rel] += " " + string(data[:min(len(data), 20)])
		}
		if target, err := os.Readlink(p); err == nil {
			m[rel] += " -> " + target
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHostileArchive: a sandbox chooses every byte of the archive, and must
// not write outside the target.
func TestHostileArchive(t *testing.T) {
	reg := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 4}
	}
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	tests := map[string]func(outside string) []tar.Header{
		"dot dot":        func(string) []tar.Header { return []tar.Header{reg("../evil")} },
		"absolute":       func(o string) []tar.Header { return []tar.Header{reg(o + "/evil")} },
		"through a link": func(o string) []tar.Header { return []tar.Header{link("d", o), reg("d/evil")} },
		"relative link":  func(string) []tar.Header { return []tar.Header{link("d", "../out"), reg("d/evil")} },
		"over a link":    func(o string) []tar.Header { return []tar.Header{link("f", o+"/evil"), reg("f")} },
		"hard link": func(o string) []tar.Header {
			return []tar.Header{{Typeflag: tar.TypeLink, Name: "h", Linkname: o + "/secret"}}
		},
		"chmod a link": func(o string) []tar.Header {
			return []tar.Header{{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o777}, link("d", o)}
		},
		"device": func(string) []tar.Header { return []tar.Header{{Typeflag: tar.TypeChar, Name: "dev", Devmajor: 1}} },
		"fifo":   func(string) []tar.Header { return []tar.Header{{Typeflag: tar.TypeFifo, Name: "fifo"}} },
		"set uid": func(string) []tar.Header {
			return []tar.Header{{Typeflag: tar.TypeReg, Name: "s", Mode: 0o4755, Size: 4}}
		},
		"root itself": func(string) []tar.Header { return []tar.Header{{Typeflag: tar.TypeDir, Name: "./", Mode: 0}} },
	}
	for name, headers := range tests {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			out, target := filepath.Join(top, "out"), filepath.Join(top, "target")
			for _, d := range []string{out, target} {
				if err := os.Mkdir(d, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(out, "secret"), []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := describe(t, out)

			var archive bytes.Buffer
			tw := tar.NewWriter(&archive)
			for _, h := range headers(out) {
				if err := tw.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
				_, _ = io.WriteString(tw, "evil"[:h.Size])
			}
			if err := tw.Close(); err != nil {
				t.Fatal(err)
			}
			stored := archive.Bytes()
			err := archives(t, &stored).Files("a").DownloadDir(t.Context(), "x", target)

			if diff := cmp.Diff(before, describe(t, out)); diff != "" {
				t.Errorf("outside changed (-before +after), DownloadDir = %v:\n%s", err, diff)
			}
			if _, err := os.Lstat(filepath.Join(top, "evil")); err == nil {
				t.Error("a file was written beside the target")
			}
			for rel, d := range describe(t, target) {
				if d[0] != '-' && d[0] != 'd' && d[0] != 'L' || d[3] == 's' || bytes.HasPrefix([]byte(d), []byte("u")) {
					t.Errorf("%s is %s", rel, d)
				}
			}
			if info, err := os.Lstat(out); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("mode of the outside directory: %v, %v", info.Mode(), err)
			}
		})
	}
}
