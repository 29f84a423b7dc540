package rest

import (
	"context"
	"encoding/base64"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// File is one path of a sandbox.
type File struct {
	Path    string    `json:"path" doc:"Absolute, inside the sandbox."`
	Name    string    `json:"name"`
	Type    string    `json:"type" enum:"file,dir,symlink,other"`
	Size    int64     `json:"size"`
	Mode    string    `json:"mode" doc:"Permission bits in octal." example:"0644"`
	UID     uint32    `json:"uid"`
	GID     uint32    `json:"gid"`
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty" doc:"Of a symlink, as stored."`
}

func fileJSON(f sandbox.File) File {
	return File{
		Path: f.Path, Name: path.Base(f.Path), Type: string(f.Type), Size: f.Size, Mode: "0" + strconv.FormatUint(uint64(f.Mode.Perm()), 8),
		UID: f.UID, GID: f.GID, ModTime: f.ModTime.UTC(), Target: f.Target,
	}
}

// FileList is a directory.
type FileList struct {
	Path    string `json:"path"`
	Entries []File `json:"entries" nullable:"false"`
}

// PathInput names a path of a sandbox.
type PathInput struct {
	IDInput
	Path string `query:"path" doc:"Absolute, or relative to /workspace."`
}

type fileOutput struct{ Body File }

func fileOut(f sandbox.File, err error) (*fileOutput, error) {
	if err != nil {
		return nil, err
	}
	return &fileOutput{fileJSON(f)}, nil
}

const filesPath = "/v1/sandboxes/{id}/files"

func (d *door) fileRoutes() {
	register(d, operation{
		id: "list-files", method: http.MethodGet, path: filesPath, tag: "files", summary: "List a directory",
		description: "Symlinks are listed and not followed. At most 100,000 entries and 32 MiB of JSON.",
		responses:   map[string]*huma.Response{"200": {Description: "OK", Content: httpapi.Media("application/json", d.Schema(FileList{}, "FileList"))}},
	}, d.listFiles)
	register(d, operation{
		id: "stat-file", method: http.MethodGet, path: filesPath + "/stat", tag: "files", summary: "Describe a path",
	}, func(ctx context.Context, in *struct {
		PathInput
		Follow bool `query:"follow" doc:"Describe what a symlink leads to."`
	}) (*fileOutput, error) {
		return fileOut(d.Core.Files().Stat(ctx, in.ID, d.within(ctx, in.ID, in.Path), in.Follow))
	})
	register(d, operation{
		id: "read-file", method: http.MethodGet, path: filesPath + "/content", tag: "files", summary: "Read a file",
		description: "Streams raw bytes of any size; a Range of one part is honoured with 206.",
		responses: map[string]*huma.Response{
			"200": {Description: "The file", Content: httpapi.Media("application/octet-stream", nil)},
			"206": {Description: "The range", Content: httpapi.Media("application/octet-stream", nil)},
			"416": {Description: "The range is outside of the file"},
		},
	}, d.readFile)
	register(d, operation{
		id: "write-file", method: http.MethodPut, path: filesPath, tag: "files", summary: "Write a file",
		description: "With path in the query the raw body is the content, of any size. Without it the body is JSON {path,content,encoding,append,mode,parents}. " +
			"A write replaces the file atomically; what is made belongs to the sandbox's user.",
	}, d.writeFile)
	d.Documented(http.MethodPut, filesPath).RequestBody = &huma.RequestBody{Content: httpapi.Content{
		"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		"application/json":         {Schema: d.Schema(WriteInput{}, "WriteInput")},
	}}
	register(d, operation{
		id: "remove-file", method: http.MethodDelete, path: filesPath, tag: "files", status: http.StatusNoContent,
		summary: "Remove a file, an empty directory or, with recursive, a tree",
	}, func(ctx context.Context, in *struct {
		PathInput
		Recursive bool `query:"recursive"`
	}) (*struct{}, error) {
		if in.Path == "" {
			return nil, errs.E(errs.Invalid, "path: missing")
		}
		return nil, d.Core.Files().Remove(ctx, in.ID, d.within(ctx, in.ID, in.Path), in.Recursive)
	})
	register(d, operation{
		id: "move-file", method: http.MethodPost, path: filesPath + "/move", tag: "files", summary: "Rename a file or directory",
	}, func(ctx context.Context, in *struct {
		IDInput
		Body MoveInput
	}) (*fileOutput, error) {
		return fileOut(d.Core.Files().Move(ctx, in.ID, d.within(ctx, in.ID, in.Body.From), d.within(ctx, in.ID, in.Body.To), in.Body.Replace))
	})
	register(d, operation{
		id: "make-dir", method: http.MethodPost, path: filesPath + "/mkdir", tag: "files", summary: "Make a directory",
	}, func(ctx context.Context, in *struct {
		IDInput
		Body MakeDirInput
	}) (*fileOutput, error) {
		mode, err := parseMode(in.Body.Mode)
		if err != nil {
			return nil, err
		}
		return fileOut(d.Core.Files().MakeDir(ctx, in.ID, d.within(ctx, in.ID, in.Body.Path), mode, in.Body.Parents))
	})
}

// MoveInput names a rename.
type MoveInput struct {
	From    string `json:"from" minLength:"1"`
	To      string `json:"to" minLength:"1"`
	Replace bool   `json:"replace,omitempty" doc:"Otherwise an existing target is a conflict."`
}

// MakeDirInput names a directory to make.
type MakeDirInput struct {
	Path    string `json:"path" minLength:"1"`
	Parents bool   `json:"parents,omitempty" doc:"Make missing parents; an existing directory is fine then."`
	Mode    string `json:"mode,omitempty" doc:"Permission bits in octal; default 0755."`
}

// WriteInput is a small file as JSON.
type WriteInput struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding,omitempty" enum:"utf-8,base64" doc:"Of content; default utf-8."`
	Append   bool   `json:"append,omitempty"`
	Mode     string `json:"mode,omitempty" doc:"Permission bits in octal."`
	Parents  bool   `json:"parents,omitempty" doc:"Make missing directories."`
}

// within gives a relative path the root that the dialect documents which made
// the sandbox. "" is that root.
func (d *door) within(ctx context.Context, id, p string) string {
	if path.IsAbs(p) {
		return p
	}
	b, err := d.Core.Sandboxes().Get(ctx, id)
	if err != nil {
		return p // what is wrong with the id the act itself says
	}
	root := d.Root(b)
	if root == "" || p == "" {
		return root + p
	}
	return root + "/" + p // whatever p climbs over, as in any other path
}

func absolute(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(sandbox.WorkspaceDir, p)
}

func parseMode(s string) (fs.FileMode, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 || n == 0 {
		return 0, errs.E(errs.Invalid, "mode: not permission bits in octal").Hint("write 644 or 0755")
	}
	return fs.FileMode(n), nil
}

type writeRequest struct {
	exchange
	PathInput
	Append  bool   `query:"append"`
	Mode    string `query:"mode" doc:"Permission bits in octal; default: an existing file's, else 0644."`
	Parents bool   `query:"parents" doc:"Make missing directories."`
}

func (d *door) writeFile(ctx context.Context, in *writeRequest) (*fileOutput, error) {
	w := sandbox.FileWrite{Append: in.Append, Parents: in.Parents}
	file, text := in.Path, in.Mode
	var body io.Reader
	if file != "" {
		body = front.Upload(front.StreamedBody(in.r))
	} else {
		data, err := front.ReadAtMost(in.r.Body, d.BodyLimit)
		if err != nil {
			return nil, err
		}
		var small WriteInput
		if len(data) == 0 || data[0] != '{' {
			return nil, errs.E(errs.Invalid, "path: missing").Hint("give ?path= and the raw content, or JSON {\"path\",\"content\"}")
		}
		if err := front.DecodeStrict(data, &small); err != nil {
			return nil, err
		}
		if body, err = small.reader(); err != nil {
			return nil, err
		}
		file, text, w.Append, w.Parents = small.Path, small.Mode, small.Append, small.Parents
	}
	if file == "" {
		return nil, errs.E(errs.Invalid, "path: missing")
	}
	var err error
	if w.Mode, err = parseMode(text); err != nil {
		return nil, err
	}
	return fileOut(d.Core.Files().Write(ctx, in.ID, d.within(ctx, in.ID, file), body, w))
}

func (in WriteInput) reader() (io.Reader, error) {
	switch in.Encoding {
	case "", "utf-8":
		return strings.NewReader(in.Content), nil
	case "base64":
		data, err := base64.StdEncoding.DecodeString(in.Content)
		if err != nil {
			return nil, errs.E(errs.Invalid, "content: not base64")
		}
		return strings.NewReader(string(data)), nil
	}
	return nil, errs.E(errs.Invalid, "encoding: neither utf-8 nor base64")
}
