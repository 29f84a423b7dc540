package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cubbyhq/cubby/client/internal/sse"
)

// Files gives access to a sandbox's files. Relative paths are relative to
// /workspace. It works also while the sandbox is stopped, for /workspace and
// /home/sandbox.
type Files struct {
	box string
	c   *Client
}

// Files returns access to a sandbox's files. It asks nobody whether the
// sandbox exists.
func (c *Client) Files(id string) *Files { return &Files{box: id, c: c} }

// File describes one path.
type File struct {
	Path    string    `json:"path"` // absolute, inside the sandbox
	Name    string    `json:"name"`
	Type    FileType  `json:"type"`
	Size    int64     `json:"size"`
	Mode    FileMode  `json:"mode"`
	UID     int       `json:"uid"`
	GID     int       `json:"gid"`
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"` // of a symlink, as stored
}

// FileType is what a path names.
type FileType string

// The types of files.
const (
	RegularFile FileType = "file"
	Directory   FileType = "dir"
	Symlink     FileType = "symlink"
	OtherFile   FileType = "other"
)

// FileMode holds permission bits; on the wire they are octal text, "0644".
type FileMode fs.FileMode

func (m FileMode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// MarshalJSON writes octal text.
func (m FileMode) MarshalJSON() ([]byte, error) { return json.Marshal(m.String()) }

// UnmarshalJSON reads octal text, or a plain number.
func (m *FileMode) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		n, err := strconv.ParseUint(s, 8, 32)
		*m = FileMode(n)
		return err
	}
	var n uint32
	err := json.Unmarshal(data, &n)
	*m = FileMode(n)
	return err
}

func (f *Files) path(elems ...string) string {
	return sandboxPath(f.box, append([]string{"files"}, elems...)...)
}

// Stat describes a path; of a symlink what it leads to.
func (f *Files) Stat(ctx context.Context, path string) (File, error) {
	return f.stat(ctx, url.Values{"path": {path}, "follow": {"true"}})
}

// Lstat describes a path; of a symlink the link itself.
func (f *Files) Lstat(ctx context.Context, path string) (File, error) {
	return f.stat(ctx, url.Values{"path": {path}})
}

func (f *Files) stat(ctx context.Context, q url.Values) (File, error) {
	var file File
	return file, f.c.do(ctx, call{method: http.MethodGet, path: f.path("stat"), query: q}, &file)
}

// List returns what is in a directory, by name; with recursive everything
// below it.
func (f *Files) List(ctx context.Context, path string, recursive bool) ([]File, error) {
	q := url.Values{"path": {path}}
	if recursive {
		q.Set("recursive", "true")
	}
	var answer struct {
		Entries []File `json:"entries"`
	}
	err := f.c.do(ctx, call{method: http.MethodGet, path: f.path(), query: q}, &answer)
	return answer.Entries, err
}

// Read returns a whole file.
func (f *Files) Read(ctx context.Context, path string) ([]byte, error) {
	r, err := f.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	return data, f.c.readError(ctx, err)
}

// Open streams a file. The caller closes it.
func (f *Files) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	return f.OpenRange(ctx, path, 0, -1)
}

// OpenRange streams length bytes of a file from offset; a negative length is
// up to the end. The caller closes it.
func (f *Files) OpenRange(ctx context.Context, path string, offset, length int64) (io.ReadCloser, error) {
	r := call{method: http.MethodGet, path: f.path("content"), query: url.Values{"path": {path}}, header: http.Header{}}
	switch {
	case length == 0:
		return io.NopCloser(http.NoBody), nil
	case length > 0:
		r.header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		r.header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	res, err := f.c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// WriteOptions says how a file is written.
type WriteOptions struct {
	// Mode of the file; 0 keeps an existing file's, else 0644.
	Mode fs.FileMode
	// Append adds to the file; otherwise it is replaced atomically: readers
	// see the old or the new content, never a part.
	Append bool
	// NoParents makes a missing directory an error; else it is made.
	NoParents bool
	// Size is the content's length where it is known; it lets the daemon
	// refuse early. 0 is unknown.
	Size int64
}

// Write streams a file into the sandbox. It belongs to the sandbox's default
// user. A write whose connection breaks leaves the old file, except with
// Append.
func (f *Files) Write(ctx context.Context, path string, content io.Reader, o WriteOptions) (File, error) {
	q := url.Values{"path": {path}}
	if o.Append {
		q.Set("append", "true")
	}
	if !o.NoParents {
		q.Set("parents", "true")
	}
	if o.Mode != 0 {
		q.Set("mode", FileMode(o.Mode.Perm()).String())
	}
	var file File
	return file, f.c.do(ctx, call{
		method: http.MethodPut, path: f.path(), query: q,
		header: http.Header{"Content-Type": {"application/octet-stream"}},
		body:   content, length: o.Size,
	}, &file)
}

// Append adds to the end of a file, which is made when it is missing.
func (f *Files) Append(ctx context.Context, path string, content io.Reader) (File, error) {
	return f.Write(ctx, path, content, WriteOptions{Append: true})
}

// MakeDir makes a directory; with parents also the missing ones above it, and
// an existing one is then no error.
func (f *Files) MakeDir(ctx context.Context, path string, parents bool) (File, error) {
	var file File
	body := map[string]any{"path": path, "parents": parents}
	return file, f.c.do(ctx, call{method: http.MethodPost, path: f.path("mkdir"), json: body}, &file)
}

// Move renames; without replace an existing target is a [Conflict].
func (f *Files) Move(ctx context.Context, from, to string, replace bool) (File, error) {
	var file File
	body := map[string]any{"from": from, "to": to, "replace": replace}
	return file, f.c.do(ctx, call{method: http.MethodPost, path: f.path("move"), json: body}, &file)
}

// Remove deletes a file or, with recursive, a whole tree.
func (f *Files) Remove(ctx context.Context, path string, recursive bool) error {
	q := url.Values{"path": {path}}
	if recursive {
		q.Set("recursive", "true")
	}
	return f.c.do(ctx, call{method: http.MethodDelete, path: f.path(), query: q}, nil)
}

// Archive streams a directory as "tar", "tar.gz" or "zip". Names in it are
// relative to the directory. The caller closes it.
func (f *Files) Archive(ctx context.Context, path, format string) (io.ReadCloser, error) {
	q := url.Values{"path": {path}, "format": {format}}
	res, err := f.c.send(ctx, call{method: http.MethodGet, path: f.path("archive"), query: q})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// Extract unpacks a tar or tar.gz stream into a directory, which is made when
// it is missing.
func (f *Files) Extract(ctx context.Context, path string, archive io.Reader) error {
	return f.c.do(ctx, call{
		method: http.MethodPut, path: f.path("archive"), query: url.Values{"path": {path}},
		header: http.Header{"Content-Type": {"application/x-tar"}}, body: archive,
	}, nil)
}

// Change is one change that a watch reports.
type Change struct {
	Path string `json:"path"`
	// Op is "create", "write", "remove", "rename", "chmod", or "overflow"
	// when changes came too fast and some were not reported.
	Op   string    `json:"op"`
	Time time.Time `json:"time"`
}

// Watch reports changes of a directory, with recursive of everything below
// it, until ctx ends or the loop is left. Changes have no offsets, so a broken
// connection ends the watch with an error.
func (f *Files) Watch(ctx context.Context, path string, recursive bool) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		q := url.Values{"path": {path}}
		if recursive {
			q.Set("recursive", "true")
		}
		res, err := f.c.send(ctx, call{
			method: http.MethodGet, path: f.path("watch"), query: q,
			header: http.Header{"Accept": {"text/event-stream"}},
		})
		if err != nil {
			yield(Change{}, err)
			return
		}
		defer res.Body.Close()
		events := sse.NewReader(res.Body)
		for {
			ev, err := events.Next()
			if err != nil {
				yield(Change{}, f.c.readError(ctx, err))
				return
			}
			change, ok, err := changeOf(ev)
			if err != nil {
				yield(Change{}, err)
				return
			}
			if ok && !yield(change, nil) {
				return
			}
		}
	}
}

func changeOf(ev sse.Event) (Change, bool, error) {
	switch ev.Name {
	case "ping", "ready":
		return Change{}, false, nil
	case "error":
		if e, ok := decodeEnvelope(ev.Data); ok {
			return Change{}, false, e
		}
		return Change{}, false, badEvent(nil)
	}
	var change Change
	if err := json.Unmarshal(ev.Data, &change); err != nil {
		return Change{}, false, badEvent(err)
	}
	return change, change.Op != "", nil
}
