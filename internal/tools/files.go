package tools

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// fileWeight is what an entry of a list takes beside its path.
const fileWeight = 160

// The encodings of contents.
const (
	AsText   = "text"
	AsBase64 = "base64"
)

func filePath(description string) *jsonschema.Schema {
	return filled(description + " Relative to /workspace, or absolute.")
}

// FileContent is a part of a file.
type FileContent struct {
	Success    bool   `json:"success"`
	Path       string `json:"path"`
	Content    string `json:"content"`
	Encoding   string `json:"encoding" jsonschema:"text, or base64 when it is not UTF-8"`
	Size       int64  `json:"size" jsonschema:"of the whole file, in bytes"`
	NextOffset int64  `json:"next_offset" jsonschema:"the offset to go on from"`
	More       bool   `json:"more" jsonschema:"whether there is more to read"`
	Offset     int64  `json:"-"` // where the content begins
}

func (s *Set) readFileTool() Tool {
	return Tool{
		Name: "read_file", Title: "Read a file", Description: "Returns a file of the session, or a part of a large one: go on from next_offset while more is true. Images are shown.",
		Input: object([]string{"session_id", "path"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "path": filePath("The file."),
			"offset": number(0, 0, 1<<53, "The byte to begin at."),
			"limit":  number(s.bounds.Read, 1, s.bounds.MostRead, "How many bytes at most. It may be fewer."),
		}),
		Output: shape[FileContent](), ReadOnly: true, Idempotent: true, run: readFile,
	}
}

func readFile(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	path := c.text("path")
	offset, limit := c.number("offset", 0, 0, 1<<53), c.number("limit", c.set.bounds.Read, 1, c.set.bounds.MostRead)
	if err := c.ready(ctx); err != nil {
		return Answer{}, err
	}
	if _, err := c.session(ctx); err != nil {
		return Answer{}, err
	}
	r, f, err := c.core.Files().Read(ctx, c.id, path, offset, limit)
	if err != nil {
		return Answer{}, err
	}
	defer r.Close()
	if err := c.core.ChargeRead(ctx, min(limit, f.Size)); err != nil {
		return Answer{}, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return Answer{}, err
	}
	out := FileContent{Success: true, Path: f.Path, Size: f.Size, Offset: offset, Encoding: AsText}
	if offset+int64(len(b)) < f.Size && len(b) > front.PartialRune(b) {
		b = b[:len(b)-front.PartialRune(b)]
	}
	out.Next(offset + int64(len(b)))
	if IsText(b) {
		out.Content = string(b)
		return Answer{Value: out}, nil
	}
	out.Content, out.Encoding = base64.StdEncoding.EncodeToString(b), AsBase64
	a := Answer{}
	if kind := http.DetectContentType(b); offset == 0 && IsImage(kind) {
		a.Image = c.imageOf(ctx, path, kind, b, f.Size)
	}
	a.Value = out
	return a, nil
}

// Next notes where the file goes on.
func (f *FileContent) Next(offset int64) { f.NextOffset, f.More = offset, offset < f.Size }

// imageOf is an image file of which the beginning was read. Its data is nil when it
// is larger than is shown, or cannot be read.
func (c *call) imageOf(ctx context.Context, path, kind string, begin []byte, size int64) *Image {
	img := &Image{Type: kind}
	if size > MaxPicture {
		return img
	}
	if int64(len(begin)) < size {
		r, _, err := c.core.Files().Read(ctx, c.id, path, 0, MaxPicture)
		if err != nil {
			return img
		}
		defer r.Close()
		if c.core.ChargeRead(ctx, min(MaxPicture, size)) != nil {
			return img
		}
		if begin, err = io.ReadAll(r); err != nil {
			return img
		}
	}
	img.Data = begin
	return img
}

type writtenFile struct {
	Success bool   `json:"success"`
	Path    string `json:"path"`
	Size    int64  `json:"size"`
}

func (s *Set) writeFileTool() Tool {
	return Tool{
		Name: "write_file", Title: "Write a file", Description: "Writes a file of the session and makes the directories that it needs.",
		Input: object([]string{"session_id", "path", "content"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "path": filePath("The file."),
			"content":  text("What to write."),
			"encoding": encodings(),
			"append":   {Type: "boolean", Description: "Add it to the end of the file instead of replacing that."},
		}),
		Output: shape[writtenFile](), Destructive: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			path := c.text("path")
			content, more := c.content("content", "encoding"), c.truth("append")
			if err := c.ready(ctx); err != nil {
				return Answer{}, err
			}
			if _, err := c.session(ctx); err != nil {
				return Answer{}, err
			}
			f, err := c.core.Files().Write(ctx, c.id, path, content, sandbox.FileWrite{Append: more, Parents: true})
			return Answer{Value: writtenFile{true, f.Path, f.Size}}, err
		},
	}
}

func encodings() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{AsText, AsBase64}, Default: []byte(`"text"`), Description: "How the content is written."}
}

// content reads a field that is text, or base64 where another field says so.
func (a *arguments) content(name, encoding string) io.Reader {
	if _, ok := a.fields[name]; !ok {
		a.add("missing", name, "Field required")
		return nil
	}
	s, _ := a.str(name)
	var r io.Reader = strings.NewReader(s)
	if a.long != nil {
		r, _ = a.long.Text(s)
	}
	if a.oneOf(encoding, AsText, AsBase64) != AsBase64 {
		return r
	}
	r, err := front.Base64(name, r)
	if err != nil {
		a.add("value_error", name, "Value error, the content is not base64")
	}
	return r
}

type fileList struct {
	Success   bool   `json:"success"`
	Path      string `json:"path"`
	Files     []file `json:"files"`
	Truncated bool   `json:"truncated" jsonschema:"whether there are more than are listed"`
}

type file struct {
	Path     string    `json:"path"`
	Type     string    `json:"type" jsonschema:"file, dir, symlink or other"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

func (s *Set) listFilesTool() Tool {
	return Tool{
		Name: "list_files", Title: "List files", Description: fmt.Sprintf("Lists a directory of the session, at most %d entries.", s.bounds.Entries),
		Input: object([]string{"session_id"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"path":       {Type: "string", Default: []byte(`"/workspace"`), Description: "The directory. Relative to /workspace, or absolute."},
			"recursive":  {Type: "boolean", Description: "List everything below it too."},
		}),
		Output: shape[fileList](), ReadOnly: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			path := c.textOr("path", sandbox.WorkspaceDir)
			recursive := c.truth("recursive")
			if err := c.ready(ctx); err != nil {
				return Answer{}, err
			}
			if _, err := c.session(ctx); err != nil {
				return Answer{}, err
			}
			out := fileList{Success: true, Path: path, Files: []file{}}
			room := c.set.bounds.EntryBytes - Weight(path)
			for f, err := range c.core.Files().List(ctx, c.id, path, recursive) {
				if err != nil {
					return Answer{}, err
				}
				room -= Weight(f.Path) + fileWeight
				if len(out.Files) == c.set.bounds.Entries || room < 0 {
					out.Truncated = true
					break
				}
				out.Files = append(out.Files, file{f.Path, string(f.Type), f.Size, f.ModTime.UTC()})
			}
			return Answer{Value: out}, nil
		},
	}
}

// TooLarge is the error of what does not fit into an answer.
func TooLarge(what string, limit int64) error {
	return errs.E(errs.TooLarge, "%s is larger than %d bytes", what, limit).Hint("read it in parts with read_file, or download it")
}
