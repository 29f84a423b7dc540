package transfer

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/hostfiles"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Imports writes into sandboxes what others exported, what the host has and what
// clients send.
type Imports struct {
	files   *Files
	exports *Exports
	uploads *hostfiles.Uploads
	dirs    *hostfiles.Allowed
}

// NewImports returns Imports of what x knows, of uploads to threads and of
// directories of the host; of both nil is none.
func NewImports(x *Exports, uploads *hostfiles.Uploads, dirs *hostfiles.Allowed) *Imports {
	return &Imports{files: x.files, exports: x, uploads: uploads, dirs: dirs}
}

// ImportEntry names what comes into a sandbox, and where to: one of Content,
// Sandbox with Path, or Source.
type ImportEntry struct {
	// Source is a path of the host, below an allowed directory or of an upload
	// to the sandbox's thread. With Content it is only a name.
	Source string
	// Sandbox is the id of another sandbox, and Path what it exported.
	Sandbox, Path string
	Content       io.Reader // nil: none
	// Destination is where it goes to, relative to /workspace or absolute. ""
	// is the last part of the source's name. A file goes into a destination
	// that ends with "/"; a directory's content is put at its destination.
	Destination string
}

// ImportedFile is what became of an entry.
type ImportedFile struct {
	Source      string // as given; ID:PATH of an export
	Destination string // absolute
	Size        int64  // of a directory, all files below it
	Err         error
}

// Import writes files and directories into a sandbox, one after another;
// each has its own error, and those of one that broke off in a directory have
// left what came before. What is made belongs to the sandbox's user, who must
// be able to write there. NotFound and WrongState are about the sandbox itself.
func (m *Imports) Import(ctx context.Context, id string, entries []ImportEntry) ([]ImportedFile, error) {
	if err := checkTransfers(len(entries)); err != nil {
		return nil, err
	}
	a, err := m.files.open(ctx, id)
	if err != nil {
		return nil, err
	}
	defer a.Done()
	results := make([]ImportedFile, len(entries))
	for i, e := range entries {
		results[i] = m.importOne(ctx, a, e)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if results[i].Err == nil {
			m.files.recorder.Note(ctx, event.New(a.Box.UID, scope.Actor(ctx), event.FileImport{Path: results[i].Destination, Size: results[i].Size}))
		}
	}
	return results, nil
}

// incoming is an open source.
type incoming struct {
	io.ReadCloser        // a file's bytes, or a directory's content as tar
	name          string // what it is called by itself
	dir           bool
	size          int64 // of a directory; -1: it has to be counted
	mode          fs.FileMode
}

func (m *Imports) importOne(ctx context.Context, a *Access, e ImportEntry) ImportedFile {
	result := ImportedFile{Source: e.Source, Destination: e.Destination}
	if e.Sandbox != "" {
		result.Source = e.Sandbox + ":" + e.Path
	}
	src, err := m.openImport(ctx, a.Box, e)
	if err != nil {
		result.Err = err
		return result
	}
	defer telemetry.Close(m.exports.log, src)
	name, err := destination(e.Destination, src)
	if err != nil {
		result.Err = err
		return result
	}
	result.Destination = name
	if result.Err = mayWrite(ctx, a, name); result.Err != nil {
		return result
	}
	if !src.dir {
		f, err := a.Write(ctx, name, src, sandbox.FileWrite{Mode: src.mode, Parents: true, User: a.Box.Spec.User})
		result.Size, result.Err = f.Size, err
		return result
	}
	counted := &tarCounter{}
	from := io.Reader(src)
	if src.size < 0 {
		from = counted.watch(src)
	}
	result.Err = a.Extract(ctx, name, from, a.Box.Spec.User)
	if result.Size = src.size; src.size < 0 {
		result.Size = counted.end()
	}
	return result
}

func (m *Imports) openImport(ctx context.Context, b sandbox.Sandbox, e ImportEntry) (*incoming, error) {
	switch {
	case e.Content != nil:
		name := ""
		if e.Source != "" {
			name = path.Base(e.Source)
		}
		return &incoming{ReadCloser: io.NopCloser(e.Content), name: name}, nil
	case e.Sandbox != "" && e.Path != "":
		return m.openImportOfSandbox(ctx, b, e)
	case e.Sandbox == "" && e.Path == "" && e.Source != "":
		return m.openImportOfHost(ctx, b, e.Source)
	}
	return nil, errs.E(errs.Invalid, "a source is required: content, what a sandbox exported or a path of the host").
		Because(&sandbox.ImportRefused{Why: sandbox.ImportNoSource})
}

func (m *Imports) openImportOfSandbox(ctx context.Context, b sandbox.Sandbox, e ImportEntry) (*incoming, error) {
	from, err := m.exports.scope.Find(ctx, e.Sandbox)
	if errors.Is(err, errs.NotFound) || errors.Is(err, errs.Invalid) || err == nil && !from.State.Live() {
		id, fate := quoted(e.Sandbox), scope.Fate(err)+scope.Failure(from)
		return nil, errs.E(errs.NotFound, "sandbox %s not found%s", id, fate).
			Because(&sandbox.ImportRefused{Why: sandbox.ImportNoSandbox, Sandbox: id, Fate: fate})
	}
	if err != nil {
		return nil, err
	}
	// The sandboxes of a tenant that are in no thread import from each other.
	if from.Spec.Thread != b.Spec.Thread {
		return nil, errs.E(errs.Forbidden, "the sandbox is in another thread").Because(&sandbox.ImportRefused{Why: sandbox.ImportOtherThread})
	}
	name, err := workspacePath(e.Path)
	if err != nil {
		return nil, err
	}
	given, err := m.exports.isExported(ctx, from.UID, name)
	if err != nil {
		return nil, err
	}
	if !given {
		return nil, errs.E(errs.Forbidden, "the file was not exported by the sandbox").Because(&sandbox.ImportRefused{Why: sandbox.ImportNotExported})
	}
	r, f, err := m.exports.exported(ctx, from, name)
	if err != nil {
		return nil, err
	}
	return &incoming{ReadCloser: r, name: path.Base(name), dir: f.Type == sandbox.Directory, size: -1, mode: f.Mode}, nil
}

func quoted(text string) string {
	if len(text) > 80 {
		text = text[:80]
	}
	return "'" + strings.Trim(strconv.Quote(strings.ToValidUTF8(text, "")), `"`) + "'"
}

func (m *Imports) openImportOfHost(ctx context.Context, b sandbox.Sandbox, name string) (*incoming, error) {
	src, ok, err := (*hostfiles.Source)(nil), false, error(nil)
	if b.Spec.Thread != "" {
		src, ok, err = m.uploads.Open(b.Tenant, b.Spec.Thread, name)
	}
	if !ok {
		src, err = m.dirs.Open(name)
	}
	if err != nil {
		return nil, err
	}
	in := &incoming{ReadCloser: src, name: src.Name, dir: src.Dir, size: src.Size, mode: src.Mode}
	if src.Dir {
		in.ReadCloser = &tarOfHost{src.Tar(ctx), src}
	}
	return in, nil
}

// tarOfHost closes a directory after the stream of its content.
type tarOfHost struct {
	io.ReadCloser
	dir io.Closer
}

func (t *tarOfHost) Close() error { return errors.Join(t.ReadCloser.Close(), t.dir.Close()) }

// destination is where a source goes to.
func destination(wanted string, src *incoming) (string, error) {
	switch {
	case wanted == "" && (src.name == "" || src.name == "." || src.name == "/"):
		return "", errs.E(errs.Invalid, "destination is required")
	case wanted == "":
		wanted = src.name
	case strings.HasSuffix(wanted, "/") && !src.dir:
		if src.name == "" {
			return "", errs.E(errs.Invalid, "destination: a file name is missing")
		}
		wanted += src.name
	}
	name, err := sandbox.ResolvePath(wanted)
	if err == nil && name == "/" {
		err = errs.E(errs.Invalid, "destination: the root of the sandbox is none")
	}
	return name, err
}

// mayWrite refuses destinations that the sandbox's user could not write: the
// files are written with more rights than theirs. It looks before the act, so
// what somebody changes in between is not seen; nothing on the host is.
func mayWrite(ctx context.Context, a *Access, name string) error {
	uid, ok := userID(a.Box.Spec.User)
	if ok && uid == 0 {
		return nil
	}
	refused := func() error {
		return errs.E(errs.Forbidden, "Permission denied: %s cannot be written by the sandbox's user", quoted(name)).
			Hint("import to /workspace or the user's home")
	}
	if !ok && !owned(name) { // a user of the image, whose number is not known here
		return refused()
	}
	for at := name; ; at = path.Dir(at) {
		f, err := a.Stat(ctx, at, true)
		if errors.Is(err, errs.NotFound) && at != "/" {
			// A link to nothing would be written through.
			if _, err := a.Stat(ctx, at, false); err == nil {
				return refused()
			}
			continue
		}
		if err != nil {
			return err
		}
		if at != name && f.Type != sandbox.Directory {
			return errs.E(errs.Invalid, "%s is not a directory", quoted(at))
		}
		if ok && !writable(f, uid) {
			return refused()
		}
		return nil
	}
}

func owned(name string) bool {
	return strings.HasPrefix(name, sandbox.WorkspaceDir+"/") || strings.HasPrefix(name, sandbox.HomeDir+"/") || name == sandbox.WorkspaceDir
}

// userID gives the number of a user that needs no account file.
func userID(user string) (uid uint32, ok bool) {
	switch user {
	case "", sandbox.UserSandbox:
		return sandbox.UserID, true
	case sandbox.UserRoot:
		return 0, true
	}
	n, err := strconv.ParseUint(user, 10, 32)
	return uint32(n), err == nil
}

// writable goes by the bits of a file, for a user whose group has its number.
func writable(f sandbox.File, uid uint32) bool {
	switch uid {
	case 0:
		return true
	case f.UID:
		return f.Mode&0o200 != 0
	case f.GID:
		return f.Mode&0o020 != 0
	}
	return f.Mode&0o002 != 0
}

// tarCounter adds up the files of a tar that passes by.
type tarCounter struct {
	w    *io.PipeWriter
	size chan int64
}

func (c *tarCounter) watch(from io.Reader) io.Reader {
	r, w := io.Pipe()
	c.w, c.size = w, make(chan int64, 1)
	go func() {
		size := int64(0)
		t := tar.NewReader(r)
		for {
			h, err := t.Next()
			if err != nil {
				break
			}
			if h.Typeflag == tar.TypeReg {
				size += h.Size
			}
		}
		_, _ = io.Copy(io.Discard, r) // what follows is for the reader beside it
		c.size <- size
	}()
	return io.TeeReader(from, w)
}

// end is called when nothing is read any more.
func (c *tarCounter) end() int64 {
	_ = c.w.Close() // it cannot fail
	return <-c.size
}
