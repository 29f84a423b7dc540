package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Import names what comes into a sandbox, and where to: one of Content,
// SessionID with Path, or Source.
type Import struct {
	// Source is a path of the daemon's host, below one of its allowed
	// directories or of an upload to the sandbox's thread. With Content it is
	// only a name.
	Source string
	// SessionID is a sandbox of the same thread, and Path what it exported.
	SessionID string
	Path      string
	Content   []byte // not nil: a file with it, of up to about 20 MiB
	// Destination is relative to /workspace, or absolute where the sandbox's
	// user can write. "" is the last part of the source's name.
	Destination string
}

// MarshalJSON sends content as base64.
func (i Import) MarshalJSON() ([]byte, error) {
	wire := struct {
		Source      string  `json:"source,omitempty"`
		SessionID   string  `json:"session_id,omitempty"`
		Path        string  `json:"path,omitempty"`
		FileContent *string `json:"file_content,omitempty"`
		Encoding    string  `json:"encoding,omitempty"`
		Destination string  `json:"destination,omitempty"`
	}{Source: i.Source, SessionID: i.SessionID, Path: i.Path, Destination: i.Destination}
	if i.Content != nil {
		text := base64.StdEncoding.EncodeToString(i.Content)
		wire.FileContent, wire.Encoding = &text, "base64"
	}
	return json.Marshal(wire)
}

// Imported is what became of an [Import].
type Imported struct {
	Source      string `json:"source"`
	Destination string `json:"destination"` // absolute, inside the sandbox
	Success     bool   `json:"success"`
	Size        int64  `json:"size"`
	Error       string `json:"error"`
}

// Import brings files and directories into a sandbox. Each has its own result;
// the error is about the whole.
func (f *Files) Import(ctx context.Context, imports ...Import) ([]Imported, error) {
	var answer struct {
		Files []Imported `json:"files"`
	}
	body := map[string]any{"files": imports}
	err := f.c.do(ctx, call{method: http.MethodPost, path: sandboxPath(f.box, "imports"), json: body}, &answer)
	return answer.Files, err
}

// Exported is a path that a sandbox gives out, or was to.
type Exported struct {
	SessionID   string    `json:"session_id"` // the sandbox's id
	Path        string    `json:"path"`       // absolute, inside the sandbox
	Success     bool      `json:"success"`    // of [Files.Export]
	Size        int64     `json:"size"`       // of a directory, all files below it
	Dir         bool      `json:"dir"`
	Error       string    `json:"error"` // of [Files.Export]
	DownloadURL string    `json:"download_url"`
	CreatedAt   time.Time `json:"created_at,omitzero"` // of [Files.Exports]
}

// Export gives out files and directories of /workspace, for download and for
// other sandboxes of the thread. Each has its own result; the good ones are
// given out whatever becomes of the others. It ends with the sandbox.
func (f *Files) Export(ctx context.Context, paths ...string) ([]Exported, error) {
	files := make([]map[string]string, len(paths))
	for i, p := range paths {
		files[i] = map[string]string{"source": p}
	}
	var answer struct {
		Files []Exported `json:"files"`
	}
	err := f.c.do(ctx, call{method: http.MethodPost, path: sandboxPath(f.box, "exports"), json: map[string]any{"files": files}}, &answer)
	return answer.Files, err
}

// Exports lists what the sandbox has given out.
func (f *Files) Exports(ctx context.Context) ([]Exported, error) {
	var answer struct {
		Files []Exported `json:"files"`
	}
	err := f.c.do(ctx, call{method: http.MethodGet, path: sandboxPath(f.box, "exports")}, &answer)
	return answer.Files, err
}

// OpenExport streams what was given out: a file as it is, a directory as an
// archive, "zip" (also "") or "tar.gz". The caller closes it.
func (f *Files) OpenExport(ctx context.Context, path, format string) (io.ReadCloser, error) {
	q := url.Values{"path": {path}}
	if format != "" {
		q.Set("format", format)
	}
	res, err := f.c.send(ctx, call{method: http.MethodGet, path: sandboxPath(f.box, "exports", "download"), query: q})
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}
