package rest

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// DownloadURL is where clients of the API at base get what a sandbox exported.
func DownloadURL(base string, b sandbox.Sandbox, name string) string {
	return base + "/v1/sandboxes/" + string(b.ID) + "/exports/download?path=" + url.QueryEscape(name)
}

// ExportsInput names paths to give out.
type ExportsInput struct {
	Files []ExportSource `json:"files" minItems:"1" maxItems:"1000" nullable:"false"`
}

// ExportSource is one of them.
type ExportSource struct {
	Source string `json:"source" doc:"A file or directory: absolute below /workspace, or relative to it."`
}

// Exported is what became of a path.
type Exported struct {
	SessionID   string `json:"session_id" doc:"The sandbox's id."`
	Path        string `json:"path" doc:"Absolute, inside the sandbox."`
	Success     bool   `json:"success"`
	Size        int64  `json:"size" doc:"In bytes; of a directory, all files below it."`
	Dir         bool   `json:"dir"`
	Error       string `json:"error"`
	DownloadURL string `json:"download_url"`
}

// ExportResult says what became of all.
type ExportResult struct {
	Success bool       `json:"success" doc:"All are registered."`
	Files   []Exported `json:"files" nullable:"false"`
	Error   string     `json:"error"`
}

// ExportEntry is a path that is registered.
type ExportEntry struct {
	SessionID   string    `json:"session_id"`
	Path        string    `json:"path"`
	Size        int64     `json:"size" doc:"When it was registered."`
	Dir         bool      `json:"dir"`
	DownloadURL string    `json:"download_url"`
	CreatedAt   time.Time `json:"created_at"`
}

// ExportList is what a sandbox gave out.
type ExportList struct {
	Files []ExportEntry `json:"files" nullable:"false"`
}

func (d *door) exportRoutes() {
	const path = "/v1/sandboxes/{id}/exports"
	register(d, operation{
		id: "export-files", method: http.MethodPost, path: path, tag: "files",
		summary: "Give out files and directories of /workspace, for download and for other sandboxes of the thread",
		description: "Nothing is copied: a path that is registered can be read as it is then, while the sandbox is there, also when it is stopped. " +
			"Each has its own result; the good ones are registered whatever becomes of the others.",
	}, func(ctx context.Context, in *struct {
		IDInput
		Body ExportsInput
	}) (*struct{ Body ExportResult }, error) {
		sources := make([]string, len(in.Body.Files))
		for i, f := range in.Body.Files {
			sources[i] = f.Source
		}
		files, err := d.Core.Exports().Add(ctx, in.ID, sources)
		if err != nil {
			return nil, err
		}
		return &struct{ Body ExportResult }{d.exportResult(ctx, files)}, nil
	})
	register(d, operation{
		id: "list-exports", method: http.MethodGet, path: path, tag: "files", summary: "List what a sandbox has given out",
	}, func(ctx context.Context, in *IDInput) (*struct{ Body ExportList }, error) {
		files, err := d.Core.Exports().List(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := ExportList{Files: make([]ExportEntry, len(files))}
		for i, f := range files {
			out.Files[i] = ExportEntry{
				SessionID: f.Sandbox, Path: f.Path, Size: f.Size, Dir: f.Dir, DownloadURL: f.DownloadURL, CreatedAt: f.At.UTC(),
			}
		}
		return &struct{ Body ExportList }{out}, nil
	})
	register(d, operation{
		id: "download-export", method: http.MethodGet, path: path + "/download", tag: "files",
		summary:     "Download what was given out: a file as it is, a directory as an archive",
		description: "An archive has everything below the directory's own name; links that lead out of it are left out.",
		responses: map[string]*huma.Response{"200": {Description: "The file or archive, streamed", Content: httpapi.Content{
			"application/octet-stream": httpapi.Media("", nil)[""], "application/zip": httpapi.Media("", nil)[""], "application/gzip": httpapi.Media("", nil)[""],
		}}},
	}, func(ctx context.Context, in *struct {
		exchange
		PathInput
		Format string `query:"format" enum:"zip,tar.gz" default:"zip" doc:"Of a directory."`
	}) (*streamed, error) {
		if in.Path == "" {
			return nil, errs.E(errs.Invalid, "path: missing")
		}
		file, err := d.Core.Exports().Open(ctx, in.ID, in.Path, in.Format)
		if err != nil {
			return nil, err
		}
		return stream(func() { d.SendDownload(in.w, in.r, file) }), nil
	})
}

func (d *door) exportResult(ctx context.Context, files []transfer.ExportedFile) ExportResult {
	out := ExportResult{Files: make([]Exported, len(files))}
	failed := 0
	for i, f := range files {
		out.Files[i] = Exported{
			SessionID: f.Sandbox, Path: f.Path, Success: f.Err == nil, Size: f.Size, Dir: f.Dir, DownloadURL: f.DownloadURL,
		}
		if f.Err != nil {
			failed++
			out.Files[i].Error = d.Said(ctx, f.Err)
		}
	}
	out.Success, out.Error = failed == 0, transfer.FailedEntries(failed, len(files))
	return out
}
