package mcp

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// defaultRead and mostRead bound what read_file returns at once, in bytes.
	defaultRead = 100_000
	mostRead    = 1 << 20
	// maxContent bounds it as it is sent.
	maxContent = 660 << 10
	// maxListed bounds the entries of a list.
	maxListed = 1000
	// fileWeight is what an entry takes beside its path.
	fileWeight = 160
)

// The encodings of contents.
const (
	asText   = "text"
	asBase64 = "base64"
)

func filePath(description string) *jsonschema.Schema {
	return filled(description + " Relative to /workspace, or absolute.")
}

type fileContent struct {
	Success    bool   `json:"success"`
	Path       string `json:"path"`
	Content    string `json:"content"`
	Encoding   string `json:"encoding" jsonschema:"text, or base64 when it is not UTF-8"`
	Size       int64  `json:"size" jsonschema:"of the whole file, in bytes"`
	NextOffset int64  `json:"next_offset" jsonschema:"the offset to go on from"`
	More       bool   `json:"more" jsonschema:"whether there is more to read"`
}

func (d *Door) readFileTool() tool {
	return tool{
		name: "read_file", title: "Read a file", description: "Returns a file of the session, or a part of a large one: go on from next_offset while more is true. Images are shown.",
		input: object([]string{"session_id", "path"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "path": filePath("The file."),
			"offset": number(0, 0, 1<<53, "The byte to begin at."),
			"limit":  number(defaultRead, 1, mostRead, "How many bytes at most. It may be fewer."),
		}),
		output: shape[fileContent](), readOnly: true, idempotent: true, run: readFile,
	}
}

func readFile(ctx context.Context, c *call) (answer, error) {
	id, path := c.text("session_id"), c.text("path")
	offset, limit := c.number("offset", 0, 0, 1<<53), c.number("limit", defaultRead, 1, mostRead)
	if err := c.check(); err != nil {
		return answer{}, err
	}
	if _, err := c.session(ctx, id); err != nil {
		return answer{}, err
	}
	r, f, err := c.core.Files().Read(ctx, id, path, offset, limit)
	if err != nil {
		return answer{}, err
	}
	defer r.Close()
	if err := c.core.ChargeRead(ctx, min(limit, f.Size)); err != nil {
		return answer{}, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return answer{}, err
	}
	out := fileContent{Success: true, Path: f.Path, Size: f.Size, Encoding: asText}
	if offset+int64(len(b)) < f.Size && len(b) > front.PartialRune(b) {
		b = b[:len(b)-front.PartialRune(b)]
	}
	if isText(b) {
		out.Content = head(string(b), maxContent)
		out.next(offset + int64(len(out.Content)))
		read := out
		if h := head(out.Content, maxRepeated); len(h) < len(out.Content) {
			read.Content = fmt.Sprintf("%s\n\n... [the rest of this part is in structuredContent; or go on with offset %d]", h, offset+int64(len(h)))
		}
		return answer{value: out, text: read}, nil
	}
	part := b[:min(len(b), maxContent/4*3)]
	out.Content, out.Encoding = base64.StdEncoding.EncodeToString(part), asBase64
	out.next(offset + int64(len(part)))
	a, read := answer{}, out
	if kind := http.DetectContentType(b); offset == 0 && isImage(kind) {
		content, whole := c.pictureOf(ctx, id, path, kind, b, f.Size)
		if content != nil {
			a.extra = append(a.extra, content)
			read.Content = "[" + kind + " image displayed to user]"
		}
		if !whole && f.Size <= maxResource {
			a.extra = append(a.extra, &sdk.ResourceLink{URI: fileURI(id, f.Path), Name: f.Path, Title: "The image as it is", MIMEType: kind, Size: &f.Size})
		}
	}
	if len(read.Content) > maxRepeated {
		read.Content = fmt.Sprintf("[%d bytes as base64 are in structuredContent]", len(part))
	}
	a.value, a.text = out, read
	return a, nil
}

func (f *fileContent) next(offset int64) { f.NextOffset, f.More = offset, offset < f.Size }

// pictureOf shows an image of which the beginning was read, and says whether it
// is shown as it is. Nil when it cannot be shown.
func (c *call) pictureOf(ctx context.Context, id, path, kind string, begin []byte, size int64) (shown sdk.Content, whole bool) {
	if size > maxPicture {
		return nil, false
	}
	if int64(len(begin)) < size {
		r, _, err := c.core.Files().Read(ctx, id, path, 0, maxPicture)
		if err != nil {
			return nil, false
		}
		defer r.Close()
		if c.core.ChargeRead(ctx, min(maxPicture, size)) != nil {
			return nil, false
		}
		if begin, err = io.ReadAll(r); err != nil {
			return nil, false
		}
	}
	content, scaled := picture(begin, kind, maxInline)
	if content == nil {
		return nil, false
	}
	return content, !scaled
}

type writtenFile struct {
	Success bool   `json:"success"`
	Path    string `json:"path"`
	Size    int64  `json:"size"`
}

func (d *Door) writeFileTool() tool {
	return tool{
		name: "write_file", title: "Write a file", description: "Writes a file of the session and makes the directories that it needs.",
		input: object([]string{"session_id", "path", "content"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "path": filePath("The file."),
			"content":  text("What to write."),
			"encoding": encodings(),
			"append":   {Type: "boolean", Description: "Add it to the end of the file instead of replacing that."},
		}),
		output: shape[writtenFile](), destructive: true,
		run: func(ctx context.Context, c *call) (answer, error) {
			id, path := c.text("session_id"), c.text("path")
			content, more := c.content("content", "encoding"), c.truth("append")
			if err := c.check(); err != nil {
				return answer{}, err
			}
			if _, err := c.session(ctx, id); err != nil {
				return answer{}, err
			}
			f, err := c.core.Files().Write(ctx, id, path, content, sandbox.FileWrite{Append: more, Parents: true})
			return answer{value: writtenFile{true, f.Path, f.Size}}, err
		},
	}
}

func encodings() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Enum: []any{asText, asBase64}, Default: []byte(`"text"`), Description: "How the content is written."}
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
	if a.oneOf(encoding, asText, asBase64) != asBase64 {
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

func (d *Door) listFilesTool() tool {
	return tool{
		name: "list_files", title: "List files", description: "Lists a directory of the session, at most 1000 entries.",
		input: object([]string{"session_id"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"path":       {Type: "string", Default: []byte(`"/workspace"`), Description: "The directory. Relative to /workspace, or absolute."},
			"recursive":  {Type: "boolean", Description: "List everything below it too."},
		}),
		output: shape[fileList](), readOnly: true, idempotent: true,
		run: func(ctx context.Context, c *call) (answer, error) {
			id, path := c.text("session_id"), c.textOr("path", sandbox.WorkspaceDir)
			recursive := c.truth("recursive")
			if err := c.check(); err != nil {
				return answer{}, err
			}
			if _, err := c.session(ctx, id); err != nil {
				return answer{}, err
			}
			out := fileList{Success: true, Path: path, Files: []file{}}
			room := maxEvent/2 - weight(path)
			for f, err := range c.core.Files().List(ctx, id, path, recursive) {
				if err != nil {
					return answer{}, err
				}
				room -= weight(f.Path) + fileWeight
				if len(out.Files) == maxListed || room < 0 {
					out.Truncated = true
					break
				}
				out.Files = append(out.Files, file{f.Path, string(f.Type), f.Size, f.ModTime.UTC()})
			}
			return answer{value: out}, nil
		},
	}
}

// tooLarge is the error of what does not fit into an answer.
func tooLarge(what string, limit int64) error {
	return errs.E(errs.TooLarge, "%s is larger than %d bytes", what, limit).Hint("read it in parts with read_file, or download it")
}
