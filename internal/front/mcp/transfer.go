package mcp

import (
	"context"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

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

func (d *Door) importFilesTool() tool {
	return tool{
		name: "import_files", title: "Import files",
		description: "Brings files into the session: content that is given here, files that another session has exported, or files of the user's " +
			"machine where that is allowed. Directories keep their tree.",
		input: object([]string{"session_id", "files"}, map[string]*jsonschema.Schema{
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
		output: shape[importResult](), destructive: true, run: importFiles,
	}
}

func importFiles(ctx context.Context, c *call) (answer, error) {
	id := c.text("session_id")
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
	if err := c.check(); err != nil {
		return answer{}, err
	}
	if err := c.running(ctx, id); err != nil {
		return answer{}, err
	}
	done := c.doing(ctx, "importing")
	defer done()
	files, err := c.core.Imports().Import(ctx, id, entries)
	if err != nil {
		return answer{}, err
	}
	again, err := c.restarted(ctx, id)
	if err != nil {
		return answer{}, err
	}
	out := importResult{Success: true, Files: []importedFile{}, Again: again}
	for _, f := range files {
		out.Success = out.Success && f.Err == nil
		out.Files = append(out.Files, importedFile{f.Source, f.Destination, f.Err == nil, f.Size, message(f.Err)})
	}
	return answer{value: out}, nil
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

type exportResult struct {
	Success bool           `json:"success" jsonschema:"whether every file was exported"`
	Files   []exportedFile `json:"files"`
	Error   string         `json:"error"`
}

type exportedFile struct {
	SessionID   string  `json:"session_id"`
	Path        string  `json:"path" jsonschema:"absolute"`
	Success     bool    `json:"success"`
	Size        int64   `json:"size"`
	Error       string  `json:"error"`
	DownloadURL *string `json:"download_url" jsonschema:"where the user can download it"`
}

func (d *Door) exportFilesTool() tool {
	return tool{
		name: "export_files", title: "Export files",
		description: "Makes files and directories below /workspace available for download and to import_files of other sessions, until the session is stopped.",
		input: object([]string{"session_id", "files"}, map[string]*jsonschema.Schema{
			"session_id": sessionID(),
			"files": list(object([]string{"source"}, map[string]*jsonschema.Schema{
				"source":      text("A file or directory of the session."),
				"destination": text("Has no effect."),
			}), "What to export."),
		}),
		output: shape[exportResult](), idempotent: true, run: exportFiles,
	}
}

func exportFiles(ctx context.Context, c *call) (answer, error) {
	id := c.text("session_id")
	var sources []string
	for _, in := range c.list("files") {
		if _, ok := in.fields["source"]; !ok {
			in.add("missing", "source", "Field required")
			continue
		}
		s, _ := in.str("source")
		sources = append(sources, s)
	}
	if err := c.check(); err != nil {
		return answer{}, err
	}
	if _, err := c.session(ctx, id); err != nil {
		return answer{}, err
	}
	files, err := c.core.Exports().Add(ctx, id, sources)
	if err != nil {
		return answer{}, err
	}
	out := exportResult{Success: true, Files: []exportedFile{}}
	a := answer{}
	for _, f := range files {
		e := exportedFile{SessionID: f.Sandbox, Path: f.Path, Success: f.Err == nil, Size: f.Size, Error: message(f.Err)}
		if f.DownloadURL != "" {
			e.DownloadURL = &f.DownloadURL
		}
		out.Success = out.Success && e.Success
		out.Files = append(out.Files, e)
		if e.Success && !f.Dir {
			a.extra = append(a.extra, &sdk.ResourceLink{URI: fileURI(f.Sandbox, f.Path), Name: f.Path, Size: &f.Size})
		}
	}
	a.value = out
	return a, nil
}
