package tools

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/front"
)

type importResult struct {
	Success bool           `json:"success" jsonschema:"whether every file came in"`
	Files   []importedFile `json:"files"`
	Error   string         `json:"error"`
	Again   string         `json:"session_restarted,omitempty" jsonschema:"why the session was started again, and what it has lost"`
}

type importedFile struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Success     bool   `json:"success"`
	Size        int64  `json:"size"`
	Error       string `json:"error"`
}

func (s *Set) importFilesTool() Tool {
	return Tool{
		Name: "import_files", Title: "Import files",
		Description: "Brings files into the session: content that is given here, files that another session has exported, or files of the user's " +
			"machine where that is allowed. Directories keep their tree.",
		Input: object([]string{"session_id", "files"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"files": list(object(nil, map[string]*jsonschema.Schema{
				"source":       text("A file or directory of the user's machine."),
				"session_id":   text("The session that exported the file; together with path."),
				"path":         text("What export_files returned as path."),
				"file_content": text("The content of the file itself."),
				"encoding":     encodings(),
				"destination":  text("Where it goes: relative to /workspace, or absolute. Default: the name that it has."),
			}), "Each has a source, a session_id with a path, or a file_content."),
		}),
		Output: shape[importResult](), Destructive: true, run: importFiles,
	}
}

func importFiles(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	var entries []transfer.ImportEntry
	for _, in := range c.list("files") {
		e := transfer.ImportEntry{
			Source: in.textOr("source", ""), Sandbox: in.textOr("session_id", ""), Path: in.textOr("path", ""),
			Destination: in.textOr("destination", ""),
		}
		if in.has("file_content") {
			e.Content = in.content("file_content", "encoding")
		}
		entries = append(entries, e)
	}
	if err := c.ready(ctx); err != nil {
		return Answer{}, err
	}
	if err := c.running(ctx); err != nil {
		return Answer{}, err
	}
	done := c.doing(ctx, "importing")
	defer done()
	files, err := c.core.Imports().Import(ctx, c.id, entries)
	if err != nil {
		return Answer{}, err
	}
	again, err := c.restarted(ctx)
	if err != nil {
		return Answer{}, err
	}
	out := importResult{Success: true, Files: []importedFile{}, Again: again}
	for _, f := range files {
		out.Success = out.Success && f.Err == nil
		out.Files = append(out.Files, importedFile{f.Source, f.Destination, f.Err == nil, f.Size, message(f.Err)})
	}
	return Answer{Value: out}, nil
}

// message is what a client may see of an error; "" without one.
func message(err error) string {
	if err == nil {
		return ""
	}
	info := front.Public(err)
	if info.Hint != "" {
		return info.Message + " (" + info.Hint + ")"
	}
	return info.Message
}

// ExportResult is what was exported.
type ExportResult struct {
	Success bool           `json:"success" jsonschema:"whether every file was exported"`
	Files   []ExportedFile `json:"files"`
	Error   string         `json:"error"`
}

// ExportedFile is one file or directory of them.
type ExportedFile struct {
	Dir         bool    `json:"-"`
	SessionID   string  `json:"session_id"`
	Path        string  `json:"path" jsonschema:"absolute"`
	Success     bool    `json:"success"`
	Size        int64   `json:"size"`
	Error       string  `json:"error"`
	DownloadURL *string `json:"download_url" jsonschema:"where the user can download it"`
}

func (s *Set) exportFilesTool() Tool {
	return Tool{
		Name: "export_files", Title: "Export files",
		Description: "Makes files and directories below /workspace available for download and to import_files of other sessions, until the session is stopped.",
		Input: object([]string{"session_id", "files"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"files": list(object([]string{"source"}, map[string]*jsonschema.Schema{
				"source":      text("A file or directory of the session."),
				"destination": text("Has no effect."),
			}), "What to export."),
		}),
		Output: shape[ExportResult](), Idempotent: true, run: exportFiles,
	}
}

func exportFiles(ctx context.Context, c *call) (Answer, error) {
	c.forSession()
	var sources []string
	for _, in := range c.list("files") {
		if _, ok := in.fields["source"]; !ok {
			in.add("missing", "source", "Field required")
			continue
		}
		s, _ := in.str("source")
		sources = append(sources, s)
	}
	if err := c.ready(ctx); err != nil {
		return Answer{}, err
	}
	if _, err := c.session(ctx); err != nil {
		return Answer{}, err
	}
	files, err := c.core.Exports().Add(ctx, c.id, sources)
	if err != nil {
		return Answer{}, err
	}
	out := ExportResult{Success: true, Files: []ExportedFile{}}
	for _, f := range files {
		e := ExportedFile{Dir: f.Dir, SessionID: f.Sandbox, Path: f.Path, Success: f.Err == nil, Size: f.Size, Error: message(f.Err)}
		if f.DownloadURL != "" {
			e.DownloadURL = &f.DownloadURL
		}
		out.Success = out.Success && e.Success
		out.Files = append(out.Files, e)
	}
	return Answer{Value: out}, nil
}
