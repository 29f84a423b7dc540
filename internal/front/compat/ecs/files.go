package ecs

import (
	"cmp"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// fileLimit bounds a file that travels inside JSON, in bytes of its content.
const fileLimit = 32 << 20

// Path names a file.
type Path struct {
	Path string `json:"path"`
}

// FileInput is a file to write.
type FileInput struct {
	Path       string `json:"path"`
	ContentB64 string `json:"content_b64"`
}

// File is a file; its content is absent after a write.
type File struct {
	Path       string  `json:"path"`
	ContentB64 *string `json:"content_b64,omitempty"`
	SizeBytes  int64   `json:"size_bytes"`
}

// Deleted names a file that is gone.
type Deleted struct {
	Deleted string `json:"deleted"`
}

// Dir is a directory, sorted by name.
type Dir struct {
	Path    string  `json:"path"`
	Entries []Entry `json:"entries" nullable:"false"`
}

// Entry is one name in a directory.
type Entry struct {
	Name      string `json:"name"`
	Type      string `json:"type" enum:"file,directory" doc:"What is no directory is a file."`
	SizeBytes int64  `json:"size_bytes"`
}

// maxListingBytes bounds a listing, as JSON.
const maxListingBytes = 32 << 20

// fileFault tells a missing file from a missing session.
func (d *dialect) fileFault(r *http.Request, err error) error {
	if errs.KindOf(err) != errs.NotFound {
		return err
	}
	if _, e := d.Core.Sandboxes().Get(r.Context(), r.PathValue("id")); e != nil {
		return err
	}
	return &fault{http.StatusNotFound, "file_not_found", err}
}

func (d *dialect) readFile(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("path")
	if name == "" {
		return errs.E(errs.Invalid, "path: required")
	}
	content, f, err := d.Core.Files().Read(r.Context(), r.PathValue("id"), name, 0, fileLimit+1)
	if err != nil {
		return d.fileFault(r, err)
	}
	defer content.Close()
	if f.Size > fileLimit {
		return errs.E(errs.TooLarge, "the file is over %d bytes", fileLimit).Hint("read it with GET /v1/sandboxes/{id}/files/content")
	}
	// A file that is cut meanwhile breaks the answer off, and what is added to
	// it is not in it.
	var long httpapi.LongTexts
	text := long.Add(func(w io.Writer) error {
		e := base64.NewEncoder(base64.StdEncoding, w)
		n, err := io.Copy(e, io.LimitReader(content, f.Size))
		if err == nil && n < f.Size {
			err = errs.E(errs.Unavailable, "the file was cut while it was read")
		}
		return errors.Join(err, e.Close())
	})
	d.WriteLong(r.Context(), w, http.StatusOK, File{Path: f.Path, ContentB64: &text, SizeBytes: f.Size}, &long)
	return nil
}

func (d *dialect) writeFile(w http.ResponseWriter, r *http.Request) error {
	// For whom is known before the body is read.
	if _, err := d.Core.Sandboxes().Get(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	doc, err := d.Spool.SetAside(r.Context(), front.StreamedBody(r), fileLimit/3*4+64<<10)
	if err != nil {
		return err
	}
	defer doc.Close()
	var in FileInput
	if err := front.DecodeLoose(doc.JSON, &in); err != nil {
		return err
	}
	if in.Path == "" {
		return errs.E(errs.Invalid, "path: required")
	}
	text, _ := doc.Text(in.ContentB64)
	content, err := front.Base64("content_b64", text)
	if err != nil {
		return err
	}
	f, err := d.Core.Files().Write(r.Context(), r.PathValue("id"), in.Path, content, sandbox.FileWrite{Parents: true})
	if err != nil {
		return d.fileFault(r, err)
	}
	front.WriteJSON(w, http.StatusCreated, File{Path: f.Path, SizeBytes: f.Size})
	return nil
}

func (d *dialect) removeFile(w http.ResponseWriter, r *http.Request) error {
	var in Path
	if err := d.ReadBody(r, &in); err != nil {
		return err
	}
	// Not everything carries the body of a DELETE.
	name := cmp.Or(in.Path, r.URL.Query().Get("path"))
	if name == "" {
		return errs.E(errs.Invalid, "path: required")
	}
	if err := d.Core.Files().Remove(r.Context(), r.PathValue("id"), name, false); err != nil {
		return d.fileFault(r, err)
	}
	front.WriteJSON(w, http.StatusOK, Deleted{name})
	return nil
}

func (d *dialect) listFiles(w http.ResponseWriter, r *http.Request) error {
	name := cmp.Or(r.URL.Query().Get("path"), sandbox.WorkspaceDir)
	out := Dir{Path: name, Entries: []Entry{}}
	size := 0
	for f, err := range d.Core.Files().List(r.Context(), r.PathValue("id"), name, false) {
		if err != nil {
			return d.fileFault(r, err)
		}
		if size += len(f.Path) + 64; size > maxListingBytes/8 { // as JSON it may be six times that
			return errs.E(errs.TooLarge, "the listing is too long").Hint("list it with GET /v1/sandboxes/{id}/files")
		}
		e := Entry{Name: path.Base(f.Path), Type: "file", SizeBytes: f.Size}
		if f.Type == sandbox.Directory {
			e.Type = "directory"
		}
		out.Entries = append(out.Entries, e)
	}
	slices.SortFunc(out.Entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}
