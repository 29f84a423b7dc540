package rest

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// largestImport bounds the body of an import, which may hold files.
	largestImport = 32 << 20
	// importsAtOnce bounds how many bodies are held that are over the limit of
	// others.
	importsAtOnce = 8
)

// ImportsInput names what comes into a sandbox.
type ImportsInput struct {
	Files []ImportSource `json:"files" minItems:"1" maxItems:"1000" nullable:"false"`
}

// ImportSource is one file or directory: its content, an export of a sandbox,
// or a path of the host.
type ImportSource struct {
	Source      string  `json:"source,omitempty" doc:"A path of the daemon's host, below one of import-allowed-dirs or of an upload to the sandbox's thread; with file_content only a name."`
	SessionID   string  `json:"session_id,omitempty" doc:"A sandbox of the same thread."`
	Path        string  `json:"path,omitempty" doc:"What it exported."`
	FileContent *string `json:"file_content,omitempty"`
	Encoding    string  `json:"encoding,omitempty" enum:"text,base64" doc:"Of file_content; default text."`
	Destination string  `json:"destination,omitempty" doc:"Relative to /workspace, or absolute where the sandbox's user can write. Default: the source's last part."`
}

// Imported is what became of one.
type Imported struct {
	Source      string `json:"source"`
	Destination string `json:"destination" doc:"Absolute, inside the sandbox."`
	Success     bool   `json:"success"`
	Size        int64  `json:"size"`
	Error       string `json:"error"`
}

// ImportResult says what became of all.
type ImportResult struct {
	Success bool       `json:"success"`
	Files   []Imported `json:"files" nullable:"false"`
	Error   string     `json:"error"`
}

func (d *Door) importRoutes() {
	const path = "/v1/sandboxes/{id}/imports"
	register(d, operation{
		id: "import-files", method: http.MethodPost, path: path, tag: "files",
		summary: "Bring files and directories in: from another sandbox, from the host, or as content",
		description: "Each has its own result. What is made belongs to the sandbox's user, who must be able to write there. " +
			"The body may be 32 MiB; larger files are for PUT …/files, or for an export of another sandbox.",
	}, d.importFiles)
	d.documented(http.MethodPost, path).RequestBody = &huma.RequestBody{
		Required: true, Content: content("application/json", d.schema(ImportsInput{}, "ImportsInput")),
	}
}

func (d *Door) importFiles(ctx context.Context, in *struct {
	exchange
	IDInput
},
) (*struct{ Body ImportResult }, error) {
	data, release, err := d.importBody(ctx, in.r.Body)
	if err != nil {
		return nil, err
	}
	defer release()
	var body ImportsInput
	if err := decodeStrict(data, &body); err != nil {
		return nil, err
	}
	entries := make([]core.ImportEntry, len(body.Files))
	for i, f := range body.Files {
		entries[i] = core.ImportEntry{Source: f.Source, SessionID: f.SessionID, Path: f.Path, Destination: f.Destination}
		if f.FileContent == nil {
			continue
		}
		if entries[i].Content, err = decodeContent(*f.FileContent, f.Encoding); err != nil {
			return nil, err
		}
		entries[i].HasContent = true
	}
	files, err := d.core.ImportFiles(ctx, in.ID, entries)
	if err != nil {
		return nil, err
	}
	out := ImportResult{Files: make([]Imported, len(files))}
	failed := 0
	for i, f := range files {
		out.Files[i] = Imported{Source: f.Source, Destination: f.Destination, Success: f.Err == nil, Size: f.Size}
		if f.Err != nil {
			failed++
			out.Files[i].Error = d.said(ctx, f.Err)
		}
	}
	out.Success, out.Error = failed == 0, core.FailedTransfers(failed, len(files))
	return &struct{ Body ImportResult }{out}, nil
}

func decodeContent(text, encoding string) ([]byte, error) {
	switch encoding {
	case "", "text":
		return []byte(text), nil
	case "base64":
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, errs.E(errs.Invalid, "file_content: not base64")
		}
		return data, nil
	}
	return nil, errs.E(errs.Invalid, "encoding: neither text nor base64")
}

// importBody reads a body; one that is over the limit of others waits for its
// turn, which release ends.
func (d *Door) importBody(ctx context.Context, r io.Reader) (data []byte, release func(), err error) {
	var head bytes.Buffer
	n, err := io.Copy(&head, io.LimitReader(r, d.limit+1))
	if err != nil {
		return nil, nil, errs.E(errs.Canceled, "the request body ended early").Because(err)
	}
	if n <= d.limit {
		return head.Bytes(), func() {}, nil
	}
	select {
	case d.imports <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	release = func() { <-d.imports }
	data, err = readAtMost(io.MultiReader(&head, r), max(largestImport, d.limit))
	if err != nil {
		release()
		return nil, nil, err
	}
	return data, release, nil
}
