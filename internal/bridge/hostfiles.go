package bridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// importFiles is the tool whose sources are files of this machine.
const importFiles = "import_files"

const (
	// maxImport bounds what one call brings from this machine, in bytes, and
	// maxImportFiles how many files. A message carries a third more.
	maxImport      = 32 << 20
	maxImportFiles = 1000
)

// entry is a file of import_files; what it has beside these fields is passed
// on.
type entry = map[string]any

// imported is what import_files tells of a file.
type imported struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Success     bool   `json:"success"`
	Size        int64  `json:"size"`
	Error       string `json:"error"`
}

// callImport reads the files of this machine that the call names and passes
// their content on in their place. Whether the rest of the call is right is
// for the daemon to say.
func (b *bridge) callImport(ctx context.Context, req *sdk.CallToolRequest, args any) (*sdk.CallToolResult, error) {
	var in map[string]any
	raw, _ := args.(json.RawMessage)
	list, ok := []any(nil), false
	if json.Unmarshal(raw, &in) == nil {
		list, ok = in["files"].([]any)
	}
	if !ok {
		return b.call(ctx, req, args)
	}
	if !namesHostFiles(list) {
		return b.call(ctx, req, args)
	}
	roots, ask := roots(ctx, req)
	if ask != nil {
		return ask, nil
	}
	out := newImports(list, b.with(roots))
	in["files"] = out.send
	if len(out.send) == 0 {
		return result(out.answer(nil), false), nil
	}
	res, err := b.call(ctx, req, in)
	if err != nil || res.IsError {
		return res, err
	}
	var answer struct {
		Files []imported `json:"files"`
	}
	text, err := json.Marshal(res.StructuredContent)
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	if err != nil || len(answer.Files) != len(out.send) {
		return unreachable(errors.New("its answer is not one of import_files")), nil
	}
	return result(out.answer(answer.Files), false), nil
}

// imports is a call of import_files with the files of this machine in it.
type imports struct {
	importable
	send  []entry
	parts []part
	bytes int64
}

// part is one file that the caller asked for: how many entries it became, or
// why it became none.
type part struct {
	source, destination string
	tree                bool
	count               int
	err                 error
}

// hostFile returns the name that an entry has on this machine; "" when its
// content is elsewhere.
func hostFile(item any) string {
	e, _ := item.(entry)
	source, _ := e["source"].(string)
	if e["file_content"] != nil || e["session_id"] != nil {
		return ""
	}
	return source
}

func namesHostFiles(list []any) bool {
	return slices.ContainsFunc(list, func(item any) bool { return hostFile(item) != "" })
}

func newImports(list []any, may importable) *imports {
	in := &imports{importable: may, send: []entry{}}
	for _, item := range list {
		e, ok := item.(entry)
		source := hostFile(item)
		if source == "" {
			if !ok {
				e = entry{"source": item} // for the daemon to refuse
			}
			in.send, in.parts = append(in.send, e), append(in.parts, part{count: 1})
			continue
		}
		destination, _ := e["destination"].(string)
		before, bytes := len(in.send), in.bytes
		p := part{source: source, destination: destination}
		p.tree, p.err = in.add(source, destination)
		if p.err != nil {
			in.send, in.bytes = in.send[:before], bytes // all of a directory or nothing
		}
		if notHere(p.err) { // it may be one that the daemon has
			in.send = append(in.send, e)
		}
		p.count = len(in.send) - before
		in.parts = append(in.parts, p)
	}
	return in
}

// add reads a file, or everything below a directory, which it then says.
// Symbolic links below one are left out, and so is what is no regular file.
func (in *imports) add(source, destination string) (tree bool, err error) {
	name, err := expand(source)
	if err != nil {
		return false, err
	}
	root, rel, err := in.root(source, name)
	if err != nil {
		return false, err
	}
	defer root.Close()
	f, err := in.open(root, rel, source)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return false, err
	} else if info.Mode().IsRegular() {
		return false, in.read(f, source, destination)
	}
	if destination == "" {
		destination = filepath.Base(name)
	}
	before := len(in.send)
	err = fs.WalkDir(root.FS(), rel, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		below, err := filepath.Rel(rel, file)
		if err != nil {
			return err
		}
		source := filepath.Join(name, below)
		f, err := in.open(root, file, source)
		if err != nil {
			return err
		}
		defer f.Close()
		return in.read(f, source, path.Join(destination, filepath.ToSlash(below)))
	})
	if err == nil && len(in.send) == before {
		err = fmt.Errorf("%s has no files", source)
	}
	return true, err
}

// read adds one file.
func (in *imports) read(f *os.File, source, destination string) error {
	if len(in.send) >= maxImportFiles {
		return fmt.Errorf("one call brings at most %d files; send an archive and unpack it in the session", maxImportFiles)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxImport-in.bytes+1))
	if err != nil {
		return err
	}
	if in.bytes += int64(len(b)); in.bytes > maxImport {
		return fmt.Errorf("one call brings at most %d MiB of files; use `cubby cp` for more", maxImport>>20)
	}
	e := entry{"source": source, "file_content": base64.StdEncoding.EncodeToString(b), "encoding": "base64"}
	if destination != "" {
		e["destination"] = destination
	}
	in.send = append(in.send, e)
	return nil
}

// expand makes a name absolute; "~/" is the home directory.
func expand(name string) (string, error) {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		return filepath.Join(home, rest), nil
	}
	return filepath.Abs(name)
}

type importAnswer struct {
	Success bool       `json:"success"`
	Files   []imported `json:"files"`
	Error   string     `json:"error"`
}

// answer is what came of each file that the caller named, out of what came of
// each that was sent.
func (in *imports) answer(done []imported) importAnswer {
	a := importAnswer{Success: true, Files: []imported{}}
	for _, p := range in.parts {
		f := imported{Source: p.source, Destination: p.destination, Success: p.err == nil}
		if p.tree && f.Destination == "" {
			f.Destination = filepath.Base(p.source)
		}
		if p.err != nil {
			f.Error = p.err.Error()
		}
		for _, d := range done[:p.count] {
			if !p.tree {
				f = d
				if p.source != "" {
					f.Source = p.source
				}
				if p.err != nil && !d.Success {
					f.Error = p.err.Error()
				}
				break
			}
			f.Size += d.Size
			if !d.Success && f.Success {
				f.Success, f.Error = false, d.Destination+": "+d.Error
			}
		}
		done = done[p.count:]
		a.Success = a.Success && f.Success
		a.Files = append(a.Files, f)
	}
	return a
}
