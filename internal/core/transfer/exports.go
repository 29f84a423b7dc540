package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// An export is a registration and no copy: the path of a sandbox may be
// downloaded and imported by others while the sandbox is there, whether it runs
// or is stopped. It ends with the sandbox.

const (
	// maxTransfers bounds the entries of one import or export.
	maxTransfers = 1000
	// maxMeasured bounds the entries of a directory that is exported.
	maxMeasured = 1_000_000
)

// Exports registers what sandboxes give out, and reads it.
type Exports struct {
	files  *Files
	store  *store.Store
	scope  *scope.Scope
	log    *slog.Logger
	now    func() time.Time
	url    func(b sandbox.Sandbox, name string) string
	budget budget.Budget
}

// ExportsConfig is what [NewExports] needs; all but DownloadURL is required.
type ExportsConfig struct {
	Files *Files
	Store *store.Store
	Scope *scope.Scope
	Log   *slog.Logger
	Now   func() time.Time
	// DownloadURL is where clients get an exported path; nil: that is not known.
	DownloadURL func(b sandbox.Sandbox, name string) string
	Budget      budget.Budget // the zero one charges nothing
}

// NewExports returns Exports of the sandboxes in the store.
func NewExports(c ExportsConfig) *Exports {
	url := c.DownloadURL
	if url == nil {
		url = func(sandbox.Sandbox, string) string { return "" }
	}
	return &Exports{files: c.Files, store: c.Store, scope: c.Scope, log: c.Log, now: c.Now, url: url, budget: c.Budget}
}

// ExportedFile is a path that was to be exported.
type ExportedFile struct {
	Sandbox string // its id
	Path    string // absolute; as it was given when it is none
	Size    int64  // of a directory, all files below it
	Dir     bool
	Err     error // nil: it is registered
	// DownloadURL is where clients get it; "" is not known.
	DownloadURL string
	At          time.Time // of the registration
}

// Add registers paths of /workspace, absolute or relative to it, for
// download and for other sandboxes of the same thread. Each has its own error;
// the good ones are registered whatever becomes of the others. NotFound and
// WrongState are about the sandbox.
func (x *Exports) Add(ctx context.Context, id string, sources []string) ([]ExportedFile, error) {
	if err := checkTransfers(len(sources)); err != nil {
		return nil, err
	}
	a, err := x.files.open(ctx, id)
	if err != nil {
		return nil, err
	}
	defer a.Done()
	results := make([]ExportedFile, len(sources))
	var good []store.Export
	var events []sandbox.Event
	for i, source := range sources {
		e, err := x.measure(ctx, a, source)
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		results[i] = ExportedFile{Sandbox: string(a.Box.ID), Path: e.Path, Err: err}
		if err != nil {
			if e.Path == "" {
				results[i].Path = source
			}
			continue
		}
		results[i] = x.exportedFile(a.Box, e)
		good = append(good, e)
		events = append(events, event.New(a.Box.UID, scope.Actor(ctx), event.FileExport{Path: e.Path, Size: e.Size}))
	}
	if len(good) > 0 {
		if err := x.store.AddExports(ctx, a.Box.UID, good, events...); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func checkTransfers(n int) error {
	if n == 0 || n > maxTransfers {
		return errs.E(errs.Invalid, "files: between 1 and %d entries", maxTransfers)
	}
	return nil
}

// FailedEntries says of an import or export how many of its entries failed;
// "" is none.
func FailedEntries(failed, of int) string {
	if failed == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d files failed", failed, of)
}

func (x *Exports) exportedFile(b sandbox.Sandbox, e store.Export) ExportedFile {
	return ExportedFile{
		Sandbox: string(b.ID), Path: e.Path, Size: e.Size, Dir: e.Kind == sandbox.Directory, At: e.At,
		DownloadURL: x.url(b, e.Path),
	}
}

// workspacePath makes a path absolute and refuses what is not in /workspace.
func workspacePath(name string) (string, error) {
	name, err := sandbox.ResolvePath(name)
	if err != nil {
		return "", err
	}
	if name != sandbox.WorkspaceDir && !strings.HasPrefix(name, sandbox.WorkspaceDir+"/") {
		return name, outsideWorkspace(name)
	}
	return name, nil
}

func outsideWorkspace(name string) error {
	return errs.E(errs.Invalid, "Path outside %s: %s", sandbox.WorkspaceDir, strings.ToValidUTF8(name, "\uFFFD"))
}

// measure describes a path that is to be exported. The path of its answer is
// "" when the source is none.
func (x *Exports) measure(ctx context.Context, a *Access, source string) (store.Export, error) {
	if source == "" {
		return store.Export{}, errs.E(errs.Invalid, "source is required")
	}
	name, err := workspacePath(source)
	e := store.Export{Path: name, At: x.now()}
	if err != nil {
		return e, err
	}
	f, err := a.Stat(ctx, name, true)
	if err != nil {
		return e, exportFault(name, err)
	}
	e.Kind, e.Size = f.Type, f.Size
	switch f.Type {
	case sandbox.RegularFile:
		// Opened only to see that no link leads out of /workspace.
		r, _, err := a.ReadWithin(ctx, sandbox.WorkspaceDir, name, 0, 0)
		if err != nil {
			return e, exportFault(name, err)
		}
		telemetry.Close(x.log, r)
		return e, nil
	case sandbox.Directory:
		r, err := a.ArchiveWithin(ctx, sandbox.WorkspaceDir, name)
		if err != nil {
			return e, exportFault(name, err)
		}
		telemetry.Close(x.log, r)
		e.Size, err = treeSize(ctx, a, name)
		return e, exportFault(name, err)
	}
	return e, errs.E(errs.Invalid, "Not a regular file or directory")
}

func treeSize(ctx context.Context, a *Access, name string) (size int64, err error) {
	n := 0
	for f, err := range a.ListFiles(ctx, name, true) {
		if err != nil {
			return 0, err
		}
		if n++; n > maxMeasured {
			return 0, errs.E(errs.TooLarge, "the directory has more than %d entries", maxMeasured)
		}
		if f.Type == sandbox.RegularFile {
			size += f.Size
		}
	}
	return size, nil
}

// exportFault puts what is wrong with a path into the documented words.
func exportFault(name string, err error) error {
	switch {
	case errors.Is(err, errs.NotFound):
		return errs.E(errs.NotFound, "File or directory not found in container").Because(err)
	case errors.Is(err, errs.Forbidden):
		return outsideWorkspace(name)
	}
	return err
}

// List returns the paths of a sandbox that are registered, in their order,
// with the sizes that they had then.
func (x *Exports) List(ctx context.Context, id string) ([]ExportedFile, error) {
	b, err := x.scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	// A path is in the answer again, in its URL. They are many, so that how many
	// bytes they have is asked before they are read.
	bytes, err := x.store.ExportsBytes(ctx, b.UID)
	if err != nil {
		return nil, err
	}
	if err := x.budget.ChargeList(ctx, 2*bytes); err != nil {
		return nil, err
	}
	exports, err := x.store.Exports(ctx, b.UID)
	if err != nil {
		return nil, err
	}
	files := make([]ExportedFile, len(exports))
	for i, e := range exports {
		files[i] = x.exportedFile(b, e)
	}
	return files, nil
}

// isExported reports whether a clean path, or a directory above it, was given
// out.
func (x *Exports) isExported(ctx context.Context, box sandbox.UID, name string) (bool, error) {
	for dir := name; strings.HasPrefix(dir, sandbox.WorkspaceDir); dir = path.Dir(dir) {
		e, err := x.store.Export(ctx, box, dir)
		switch {
		case err == nil && (dir == name || e.Kind == sandbox.Directory):
			return true, nil
		case err != nil && !errors.Is(err, errs.NotFound):
			return false, err
		}
	}
	return false, nil
}

// exported opens a path of a sandbox that was given out; it stays in
// /workspace, whatever links are on its way now.
func (x *Exports) exported(ctx context.Context, b sandbox.Sandbox, name string) (r io.ReadCloser, f sandbox.File, err error) {
	a, err := x.files.open(ctx, string(b.ID))
	if err != nil {
		return nil, f, err
	}
	defer func() {
		if err != nil {
			a.Done()
		}
	}()
	if a.Box.UID != b.UID {
		return nil, f, x.scope.NoSuch(ctx, b.ID)
	}
	if f, err = a.Stat(ctx, name, true); err != nil {
		return nil, f, exportFault(name, err)
	}
	switch f.Type {
	case sandbox.RegularFile:
		r, f, err = a.ReadWithin(ctx, sandbox.WorkspaceDir, name, 0, -1)
	case sandbox.Directory:
		r, err = x.files.packing.open(ctx, func() (io.ReadCloser, error) { return a.ArchiveWithin(ctx, sandbox.WorkspaceDir, name) })
	default:
		err = errs.E(errs.Invalid, "Not a regular file or directory")
	}
	if err != nil {
		return nil, f, exportFault(name, err)
	}
	return InUse(r, a.Done), f, nil
}

// Download is an exported file, or a directory as an archive. The caller closes
// it.
type Download struct {
	io.ReadCloser
	Name    string // for who stores it: the last part of the path, with the archive's ending
	Size    int64  // -1: not known
	Dir     bool
	Format  sandbox.ArchiveFormat // of a directory
	ModTime time.Time             // of a file
}

func notExported(why string) error {
	return errs.E(errs.Forbidden, "File not exported or access denied%s", why)
}

// Open streams a path that was exported, or one below a directory that
// was: a file as it is, a directory as zip, or as tar.gz where format says so.
// Forbidden when it was not exported.
func (x *Exports) Open(ctx context.Context, id, name, format string) (*Download, error) {
	b, err := x.scope.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return x.openPath(ctx, b, name, format)
}

// OpenInThread is Open of a sandbox in a thread. Sandboxes that do
// not exist or are in no such thread are Forbidden too.
func (x *Exports) OpenInThread(ctx context.Context, thread, id, name, format string) (*Download, error) {
	b, err := x.scope.Find(ctx, id)
	if errors.Is(err, errs.NotFound) || errors.Is(err, errs.Invalid) || err == nil && b.Spec.Thread != thread {
		return nil, notExported(scope.Fate(err))
	}
	if err != nil {
		return nil, err
	}
	return x.openPath(ctx, b, name, format)
}

func (x *Exports) openPath(ctx context.Context, b sandbox.Sandbox, name, format string) (*Download, error) {
	archive := sandbox.ArchiveFormat(format)
	if archive == "" {
		archive = sandbox.Zip
	}
	convert, ok := exportFormats[archive]
	if !ok {
		return nil, errs.E(errs.Invalid, "format: %.20q is neither zip nor tar.gz", format)
	}
	name, err := workspacePath(name)
	if err != nil {
		return nil, err
	}
	given, err := x.isExported(ctx, b.UID, name)
	if err != nil {
		return nil, err
	}
	if !given {
		return nil, notExported("")
	}
	r, f, err := x.exported(ctx, b, name)
	if err != nil {
		return nil, err
	}
	x.log.DebugContext(ctx, "an export is read", telemetry.KeyUID, b.UID)
	if f.Type == sandbox.RegularFile {
		size := f.Size
		if size == 0 {
			size = -1 // files that do not know their size say so
		}
		return &Download{ReadCloser: r, Name: path.Base(name), Size: size, ModTime: f.ModTime}, nil
	}
	base := path.Base(name)
	return &Download{
		ReadCloser: converted(r, x.files.packing.within(func(w io.Writer, from io.Reader) error { return convert(w, from, base) })),
		Name:       base + "." + string(archive), Size: -1, Dir: true, Format: archive,
	}, nil
}
