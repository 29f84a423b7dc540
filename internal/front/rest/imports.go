package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// largestImport bounds the body of an import, which may hold files.
const largestImport = 32 << 20

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

func (d *door) importRoutes() {
	const path = "/v1/sandboxes/{id}/imports"
	register(d, operation{
		id: "import-files", method: http.MethodPost, path: path, tag: "files",
		summary: "Bring files and directories in: from another sandbox, from the host, or as content",
		description: "Each has its own result. What is made belongs to the sandbox's user, who must be able to write there. " +
			"The body may be 32 MiB; larger files are for PUT …/files, or for an export of another sandbox.",
	}, d.importFiles)
	d.Documented(http.MethodPost, path).RequestBody = &huma.RequestBody{
		Required: true, Content: httpapi.Media("application/json", d.Schema(ImportsInput{}, "ImportsInput")),
	}
}

func (d *door) importFiles(ctx context.Context, in *struct {
	exchange
	IDInput
},
) (*struct{ Body ImportResult }, error) {
	// For whom and where to is known before the body is read.
	if _, err := d.Core.Sandboxes().Get(ctx, in.ID); err != nil {
		return nil, err
	}
	doc, err := d.Spool.SetAside(ctx, front.StreamedBody(in.r), max(largestImport, d.BodyLimit))
	if err != nil {
		return nil, err
	}
	defer doc.Close()
	var body ImportsInput
	if err := front.DecodeStrict(doc.JSON, &body); err != nil {
		return nil, err
	}
	entries := make([]transfer.ImportEntry, len(body.Files))
	for i, f := range body.Files {
		entries[i] = transfer.ImportEntry{Source: f.Source, Sandbox: f.SessionID, Path: f.Path, Destination: f.Destination}
		if f.FileContent == nil {
			continue
		}
		text, _ := doc.Text(*f.FileContent)
		if entries[i].Content, err = httpapi.DecodeContent("file_content", text, f.Encoding); err != nil {
			return nil, err
		}
	}
	files, err := d.Core.Imports().Import(ctx, in.ID, entries)
	if err != nil {
		return nil, err
	}
	out := ImportResult{Files: make([]Imported, len(files))}
	failed := 0
	for i, f := range files {
		out.Files[i] = Imported{Source: f.Source, Destination: f.Destination, Success: f.Err == nil, Size: f.Size}
		if f.Err != nil {
			failed++
			out.Files[i].Error = d.Said(ctx, f.Err)
		}
	}
	out.Success, out.Error = failed == 0, transfer.FailedEntries(failed, len(files))
	return &struct{ Body ImportResult }{out}, nil
}
