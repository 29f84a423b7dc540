package bridge

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// importable is what import_files may read of this machine. A model chooses
// the names, and what it reads may come from anybody: so the user's files are
// closed but for those that belong to the work.
type importable struct {
	dirs  []string // absolute: what is below these
	never []string // absolute: but nothing below these
}

// errNotImportable is the cause of a refusal.
var errNotImportable = errors.New("not importable")

// system are directories whose files are not data: /proc holds the environment
// of processes, and so the bridge's own token.
var system = []string{"/proc", "/sys", "/dev"}

// newImportable allows the directories that the user named, and the working
// directory unless it is where a user's files of every kind are: the home
// directory or one above.
func newImportable(dirs, never []string) importable {
	i := importable{never: slices.Concat(system, never)}
	for _, dir := range dirs {
		if abs, err := expand(dir); err == nil {
			i.dirs = append(i.dirs, abs)
		}
	}
	if cwd, err := os.Getwd(); err == nil && !aboveHome(cwd) {
		i.dirs = append(i.dirs, cwd)
	}
	return i
}

// with also allows the client's roots.
func (i importable) with(roots []*sdk.Root) importable { //nolint:staticcheck // deprecated and in use
	i.dirs = slices.Clone(i.dirs)
	for _, r := range roots {
		u, err := url.Parse(r.URI)
		if err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && filepath.IsAbs(u.Path) {
			i.dirs = append(i.dirs, filepath.Clean(u.Path))
		}
	}
	return i
}

// aboveHome reports whether dir is the user's home directory or one above it.
// What cannot be found out counts as such.
func aboveHome(dir string) bool {
	homes := []string{}
	if home, err := os.UserHomeDir(); err == nil {
		homes = append(homes, home)
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		homes = append(homes, u.HomeDir) // HOME may be another
	}
	if u, err := user.Lookup(os.Getenv("SUDO_USER")); err == nil && u.HomeDir != "" {
		homes = append(homes, u.HomeDir)
	}
	dir = resolved(dir)
	return len(homes) == 0 || dir == "/" || slices.ContainsFunc(homes, func(home string) bool {
		_, ok := below(dir, resolved(home))
		return ok
	})
}

// refusal is the error of a file that may not be read.
func (i importable) refusal(source string) error {
	if len(i.dirs) == 0 {
		return fmt.Errorf("%w: %s: no directory of this machine may be imported from; start cubby mcp with --import-dir DIR to allow one", errNotImportable, source)
	}
	return fmt.Errorf("%w: %s is outside of %s; start cubby mcp with --import-dir DIR to allow more", errNotImportable, source, strings.Join(i.dirs, " and "))
}

// root opens the directory that holds name and returns name's place in it. No
// link leads out of it.
func (i importable) root(source, name string) (*os.Root, string, error) {
	err := i.refusal(source)
	for _, dir := range i.dirs {
		rel, ok := below(dir, name)
		if !ok {
			rel, ok = below(resolved(dir), name)
		}
		if !ok {
			continue
		}
		var r *os.Root
		if r, err = os.OpenRoot(dir); err == nil {
			return r, rel, nil
		}
	}
	return nil, "", err
}

// open opens a regular file below a root. It waits for no FIFO's writer, and
// what may never be read is refused by the place that the file is really at.
func (i importable) open(r *os.Root, rel, source string) (*os.File, error) {
	f, err := r.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := i.check(f, filepath.Join(r.Name(), rel), source); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (i importable) check(f *os.File, name, source string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return fmt.Errorf("%s is neither a file nor a directory", source)
	}
	place, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	if now, err := os.Stat(place); err != nil || !os.SameFile(info, now) {
		return fmt.Errorf("%s changed while it was read", source)
	}
	for _, dir := range i.never {
		if _, ok := below(resolved(dir), place); ok {
			return fmt.Errorf("%w: nothing below %s is", errNotImportable, dir)
		}
	}
	return nil
}

// below returns name's place below dir.
func below(dir, name string) (string, bool) {
	rel, err := filepath.Rel(dir, name)
	return rel, err == nil && filepath.IsLocal(rel)
}

// resolved is a path without links, where it can be followed.
func resolved(name string) string {
	if place, err := filepath.EvalSymlinks(name); err == nil {
		return place
	}
	return filepath.Clean(name)
}

// notHere reports whether an error says that this machine does not have a file
// or may not give it: the daemon may have it.
func notHere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotImportable)
}

const (
	// statelessProtocol is the first revision in which a client is not asked
	// but answers a result.
	statelessProtocol = "2026-07-28"
	// rootsTimeout is how long a client may take to name its roots.
	rootsTimeout = 5 * time.Second
	rootsRequest = "roots"
)

// roots returns the directories that the client works in. A client of the
// stateless protocol is asked by the result that is returned, and calls again.
func roots(ctx context.Context, req *sdk.CallToolRequest) ([]*sdk.Root, *sdk.CallToolResult) { //nolint:staticcheck // deprecated and in use
	can := req.ClientCapabilities()
	if can == nil || can.RootsV2 == nil { //nolint:staticcheck // the clients that have roots name them so
		return nil, nil
	}
	if req.ProtocolVersion() >= statelessProtocol {
		if req.Params.InputResponses == nil {
			return nil, &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{rootsRequest: &sdk.ListRootsParams{}}} //nolint:staticcheck // deprecated and in use
		}
		if res, ok := req.Params.InputResponses[rootsRequest].(*sdk.ListRootsResult); ok { //nolint:staticcheck // deprecated and in use
			return res.Roots, nil
		}
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rootsTimeout)
	defer cancel()
	res, err := req.Session.ListRoots(ctx, nil) //nolint:staticcheck // deprecated and in use
	if err != nil {
		return nil, nil // as a client without roots
	}
	return res.Roots, nil
}
