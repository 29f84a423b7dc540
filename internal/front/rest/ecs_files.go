package rest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// ecsFileLimit bounds a file that travels inside JSON, in bytes of its content.
const ecsFileLimit = 32 << 20

// ECSPath names a file.
type ECSPath struct {
	Path string `json:"path"`
}

// ECSFileInput is a file to write.
type ECSFileInput struct {
	Path       string `json:"path"`
	ContentB64 string `json:"content_b64"`
}

// ECSFile is a file; its content is absent after a write.
type ECSFile struct {
	Path       string  `json:"path"`
	ContentB64 *string `json:"content_b64,omitempty"`
	SizeBytes  int64   `json:"size_bytes"`
}

// ECSDeleted names a file that is gone.
type ECSDeleted struct {
	Deleted string `json:"deleted"`
}

// ECSDir is a directory, sorted by name.
type ECSDir struct {
	Path    string     `json:"path"`
	Entries []ECSEntry `json:"entries" nullable:"false"`
}

// ECSEntry is one name in a directory.
type ECSEntry struct {
	Name      string `json:"name"`
	Type      string `json:"type" enum:"file,directory" doc:"What is no directory is a file."`
	SizeBytes int64  `json:"size_bytes"`
}

// fileFault tells a missing file from a missing session.
func (d *Door) fileFault(r *http.Request, err error) error {
	if errs.KindOf(err) != errs.NotFound {
		return err
	}
	if _, e := d.core.Sandbox(r.Context(), r.PathValue("id")); e != nil {
		return err
	}
	return &ecsFault{http.StatusNotFound, "file_not_found", err}
}

func (d *Door) ecsReadFile(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("path")
	if name == "" {
		return errs.E(errs.Invalid, "path: required")
	}
	content, f, err := d.core.ReadFile(r.Context(), r.PathValue("id"), name, 0, ecsFileLimit+1)
	if err != nil {
		return d.fileFault(r, err)
	}
	defer content.Close()
	data, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	if len(data) > ecsFileLimit {
		return errs.E(errs.TooLarge, "the file is over %d bytes", ecsFileLimit).Hint("read it with GET /v1/sandboxes/{id}/files")
	}
	text := base64.StdEncoding.EncodeToString(data)
	front.WriteJSON(w, http.StatusOK, ECSFile{Path: f.Path, ContentB64: &text, SizeBytes: int64(len(data))})
	return nil
}

func (d *Door) ecsWriteFile(w http.ResponseWriter, r *http.Request) error {
	body, err := readAtMost(r.Body, ecsFileLimit/3*4+64<<10)
	if err != nil {
		return err
	}
	var in ECSFileInput
	if err := decodeLoose(body, &in); err != nil {
		return err
	}
	if in.Path == "" {
		return errs.E(errs.Invalid, "path: required")
	}
	data, err := base64.StdEncoding.DecodeString(in.ContentB64)
	if err != nil {
		return errs.E(errs.Invalid, "content_b64: not base64")
	}
	f, err := d.core.WriteFile(r.Context(), r.PathValue("id"), in.Path, bytes.NewReader(data), sandbox.FileWrite{Parents: true})
	if err != nil {
		return d.fileFault(r, err)
	}
	front.WriteJSON(w, http.StatusCreated, ECSFile{Path: f.Path, SizeBytes: int64(len(data))})
	return nil
}

func (d *Door) ecsDeleteFile(w http.ResponseWriter, r *http.Request) error {
	var in ECSPath
	if err := d.body(r, &in); err != nil {
		return err
	}
	// Not everything carries the body of a DELETE.
	name := cmp.Or(in.Path, r.URL.Query().Get("path"))
	if name == "" {
		return errs.E(errs.Invalid, "path: required")
	}
	if err := d.core.RemoveFile(r.Context(), r.PathValue("id"), name, false); err != nil {
		return d.fileFault(r, err)
	}
	front.WriteJSON(w, http.StatusOK, ECSDeleted{name})
	return nil
}

func (d *Door) ecsListFiles(w http.ResponseWriter, r *http.Request) error {
	name := cmp.Or(r.URL.Query().Get("path"), sandbox.WorkspaceDir)
	out := ECSDir{Path: name, Entries: []ECSEntry{}}
	for f, err := range d.core.ListFiles(r.Context(), r.PathValue("id"), name, false) {
		if err != nil {
			return d.fileFault(r, err)
		}
		e := ECSEntry{Name: path.Base(f.Path), Type: "file", SizeBytes: f.Size}
		if f.Type == sandbox.Directory {
			e.Type = "directory"
		}
		out.Entries = append(out.Entries, e)
	}
	slices.SortFunc(out.Entries, func(a, b ECSEntry) int { return strings.Compare(a.Name, b.Name) })
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}
