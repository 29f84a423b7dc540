package tools

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// maxEdited bounds a file that edit_file changes.
	maxEdited = 4 << 20
	// editTries bounds how often an edit begins anew because somebody else has
	// changed the file meanwhile.
	editTries = 5
)

type editedFile struct {
	Success  bool   `json:"success"`
	Path     string `json:"path"`
	Replaced int    `json:"replaced" jsonschema:"how many places were changed"`
	Size     int64  `json:"size"`
}

func (s *Set) editFileTool() Tool {
	return Tool{
		Name: "edit_file", Title: "Edit a file",
		Description: "Replaces a piece of text in a file of the session. The piece has to be exactly what is there, with spaces and line ends, and has to " +
			"occur once unless replace_all is set. Read the file first.",
		Input: object([]string{"session_id", "path", "old_string", "new_string"}, map[string]*jsonschema.Schema{
			"session_id":  sessionID(),
			"path":        filePath("The file."),
			"old_string":  filled("What is to be replaced."),
			"new_string":  text("What takes its place; empty removes it."),
			"replace_all": {Type: "boolean", Description: "Replace it wherever it occurs."},
		}),
		Output: shape[editedFile](), Destructive: true, run: editFile,
	}
}

func editFile(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	path, old, all := c.text("path"), c.text("old_string"), c.truth("replace_all")
	with := ""
	if _, ok := c.fields["new_string"]; !ok {
		c.add("missing", "new_string", "Field required")
	} else {
		with, _ = c.str("new_string")
	}
	if old != "" && old == with {
		c.add("value_error", "new_string", "Value error, it is the same as old_string")
	}
	if err := c.ready(ctx); err != nil {
		return Answer{}, err
	}
	// The agent of one that runs lets nobody's change be lost.
	if err := c.running(ctx); err != nil {
		return Answer{}, err
	}
	for try := 1; ; try++ {
		out, err := c.edit(ctx, path, []byte(old), []byte(with), all)
		if try < editTries && errors.Is(err, errs.Conflict) {
			continue
		}
		return Answer{Value: out}, err
	}
}

// edit reads a file, changes it, and writes it if it is still what was read.
func (c *call) edit(ctx context.Context, path string, old, with []byte, all bool) (out editedFile, err error) {
	content, f, err := c.whole(ctx, path, maxEdited)
	if err != nil {
		return out, err
	}
	n := bytes.Count(content, old)
	switch {
	case n == 0:
		return out, errs.E(errs.Invalid, "old_string does not occur in %s", f.Path).
			Hint("read the file again: the text has to be exactly what is there, with spaces and line ends")
	case n > 1 && !all:
		return out, errs.E(errs.Invalid, "old_string occurs %d times in %s", n, f.Path).
			Hint("give more of the text around it so that it occurs once, or set replace_all")
	}
	sum := sha256.Sum256(content)
	f, err = c.core.Files().Write(ctx, c.id, path, bytes.NewReader(bytes.ReplaceAll(content, old, with)), sandbox.FileWrite{Replaces: sum[:]})
	return editedFile{true, f.Path, n, f.Size}, err
}

// whole is all of a file.
func (c *call) whole(ctx context.Context, path string, most int64) ([]byte, sandbox.File, error) {
	r, f, err := c.core.Files().Read(ctx, c.id, path, 0, -1)
	if err != nil {
		return nil, f, err
	}
	defer r.Close()
	if f.Size > most {
		return nil, f, errs.E(errs.TooLarge, "%s is larger than %d bytes", f.Path, most).Hint("work on it with a command")
	}
	if err := c.core.ChargeRead(ctx, f.Size); err != nil {
		return nil, f, err
	}
	b, ok, err := AtMost(r, most)
	if err == nil && !ok { // it grew
		err = errs.E(errs.TooLarge, "%s is larger than %d bytes", f.Path, most)
	}
	return b, f, err
}

// ShownImage is an image that is shown.
type ShownImage struct {
	Success bool   `json:"success"`
	Path    string `json:"path"`
	Type    string `json:"type" jsonschema:"the MIME type"`
	Size    int64  `json:"size"`
}

func (s *Set) showImageTool() Tool {
	return Tool{
		Name: "show_image", Title: "Show an image",
		Description: "Shows an image file of the session (PNG, JPEG, WebP or GIF) to the user, and to you if you can see.",
		Input: object([]string{"session_id", "path"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(), "path": filePath("The image."),
		}),
		Output: shape[ShownImage](), ReadOnly: true, Idempotent: true,
		run: func(ctx context.Context, c *call) (Answer, error) {
			c.forSession()
			path := c.text("path")
			if err := c.ready(ctx); err != nil {
				return Answer{}, err
			}
			if _, err := c.session(ctx); err != nil {
				return Answer{}, err
			}
			begin, f, err := c.beginning(ctx, path)
			if err != nil {
				return Answer{}, err
			}
			kind := imageType(begin)
			switch {
			case kind == "":
				return Answer{}, errs.E(errs.Invalid, "%s is not a PNG, JPEG, WebP or GIF image", f.Path)
			case f.Size > MaxPicture:
				return Answer{}, errs.E(errs.TooLarge, "%s is larger than %d bytes", f.Path, MaxPicture).Hint("make it smaller first")
			}
			data, f, err := c.whole(ctx, path, MaxPicture)
			if err != nil {
				return Answer{}, err
			}
			return Answer{Value: ShownImage{true, f.Path, kind, f.Size}, Image: &Image{kind, data}}, nil
		},
	}
}

// beginning is what says of which type a file is.
func (c *call) beginning(ctx context.Context, path string) ([]byte, sandbox.File, error) {
	r, f, err := c.core.Files().Read(ctx, c.id, path, 0, sniffed)
	if err != nil {
		return nil, f, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return b, f, err
}
