// Package cp copies files and directories as the program of that name does, between
// here and sandboxes, and from sandbox to sandbox: a target that is a directory gets
// the source in it, and "dir/." is what is in dir. It goes through the daemon's file
// API alone.
package cp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/cubbyhq/cubby/client"
)

// Place is a path here, or in a sandbox.
type Place struct {
	Box  string // the sandbox's id; "": here
	Path string
}

// ParsePlace takes ID:path for a sandbox's; "./a:b" is a path here.
func ParsePlace(s string) Place {
	box, p, ok := strings.Cut(s, ":")
	if !ok || box == "" || strings.ContainsAny(box, `/\.`) {
		return Place{Path: s}
	}
	if p == "" {
		p = "."
	}
	return Place{box, p}
}

// ErrHere is the error of a copy between two places here.
var ErrHere = errors.New("write a path in a sandbox as ID:path; cubby copies nothing from here to here")

// Copier copies. The path "-" here is Stdin as a source and Stdout as a target.
type Copier struct {
	Client *client.Client
	Stdin  io.Reader
	Stdout io.Writer
}

// Copy copies one source. What is replaced is replaced as a whole, so that one that
// breaks off leaves the old file.
func (c Copier) Copy(ctx context.Context, from, to Place) error {
	switch {
	case from.Box == "" && to.Box != "":
		return c.copyIn(ctx, from.Path, to)
	case from.Box != "" && to.Box == "":
		return c.copyOut(ctx, from, to.Path)
	case from.Box != "":
		return c.copyAcross(ctx, from, to)
	}
	return ErrHere
}

// NeedDirectory fails unless a target can take several sources.
func (c Copier) NeedDirectory(ctx context.Context, to Place) error {
	if to.Box == "" {
		if info, err := os.Stat(to.Path); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is no directory: several sources need one", to.Path)
		}
		return nil
	}
	stat, err := c.Client.Files(to.Box).Stat(ctx, to.Path)
	switch {
	case err == nil && stat.Type == client.Directory:
		return nil
	case err == nil, errors.Is(err, client.NotFound) && strings.Contains(err.Error(), "no such file"):
		return fmt.Errorf("%s is no directory of %s: several sources need one", to.Path, to.Box)
	}
	return err
}

// copyIn copies a path here into a sandbox.
func (c Copier) copyIn(ctx context.Context, from string, to Place) error {
	files := c.Client.Files(to.Box)
	if from == "-" {
		if strings.HasSuffix(to.Path, "/") || to.Path == "." {
			return errors.New("the input has no name: give the target a file's path")
		}
		_, err := files.Write(ctx, to.Path, c.Stdin, client.WriteOptions{NoParents: true})
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	target := to.Path
	if contents := filepath.Base(from) == "." && info.IsDir() || strings.HasSuffix(from, "/."); !contents {
		if target, err = remoteTarget(ctx, files, to.Path, filepath.Base(filepath.Clean(from)), info.IsDir()); err != nil {
			return err
		}
	}
	if info.IsDir() {
		return files.UploadDir(ctx, from, target)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	o := client.WriteOptions{Mode: info.Mode().Perm(), NoParents: true}
	if info.Mode().IsRegular() {
		o.Size = info.Size()
	}
	_, err = files.Write(ctx, target, f, o)
	return err
}

// remoteTarget is where something called name goes when it is copied to p.
func remoteTarget(ctx context.Context, files *client.Files, p, name string, dir bool) (string, error) {
	stat, err := files.Stat(ctx, p)
	switch {
	case err == nil && stat.Type == client.Directory:
		return path.Join(p, name), nil
	case err == nil && dir:
		return "", fmt.Errorf("%s is a file: a directory cannot replace it", p)
	case err == nil:
		return p, nil
	case errors.Is(err, client.NotFound) && strings.HasSuffix(p, "/") && !dir:
		return "", fmt.Errorf("there is no directory %s", p)
	case errors.Is(err, client.NotFound):
		return p, nil
	}
	return "", err
}

// copyAcross copies from one sandbox into another, through here; nothing of it
// touches this machine's disk.
func (c Copier) copyAcross(ctx context.Context, from, to Place) error {
	source, target := c.Client.Files(from.Box), c.Client.Files(to.Box)
	stat, err := source.Stat(ctx, from.Path)
	if err != nil {
		return err
	}
	dir := stat.Type == client.Directory
	clean := path.Clean(from.Path)
	where := to.Path
	if contents := dir && (strings.HasSuffix(from.Path, "/.") || clean == "."); !contents {
		if where, err = remoteTarget(ctx, target, to.Path, path.Base(clean), dir); err != nil {
			return err
		}
	}
	if dir {
		r, err := source.Archive(ctx, from.Path, "tar")
		if err != nil {
			return err
		}
		defer r.Close()
		return target.Extract(ctx, where, r)
	}
	r, err := source.Open(ctx, from.Path)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = target.Write(ctx, where, r, client.WriteOptions{Mode: fs.FileMode(stat.Mode).Perm(), NoParents: true, Size: stat.Size})
	return err
}

// copyOut copies a path of a sandbox here.
func (c Copier) copyOut(ctx context.Context, from Place, to string) error {
	files := c.Client.Files(from.Box)
	stat, err := files.Stat(ctx, from.Path)
	if err != nil {
		return err
	}
	dir := stat.Type == client.Directory
	if to == "-" {
		return c.copyToOutput(ctx, files, from.Path, dir)
	}
	target := to
	clean := path.Clean(from.Path)
	contents := strings.HasSuffix(from.Path, "/.") || clean == "."
	info, err := os.Stat(to)
	if into := err == nil && info.IsDir(); into && (!dir || !contents) {
		target = filepath.Join(to, path.Base(clean))
	} else if err != nil && !dir && strings.HasSuffix(to, string(filepath.Separator)) {
		return fmt.Errorf("there is no directory %s", to)
	}
	if dir {
		return files.DownloadDir(ctx, from.Path, target)
	}
	return download(ctx, files, from.Path, target, fs.FileMode(stat.Mode).Perm())
}

func (c Copier) copyToOutput(ctx context.Context, files *client.Files, p string, dir bool) error {
	var r io.ReadCloser
	var err error
	if dir {
		r, err = files.Archive(ctx, p, "tar")
	} else {
		r, err = files.Open(ctx, p)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(c.Stdout, r)
	return err
}

// download writes beside the target and renames, so that a broken connection
// leaves the old file. Something that is not a file is written to as it is.
func download(ctx context.Context, files *client.Files, from, to string, mode fs.FileMode) (err error) {
	r, err := files.Open(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	if info, err := os.Stat(to); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(to, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		return errors.Join(err, f.Close())
	}
	if target, err := filepath.EvalSymlinks(to); err == nil {
		to = target
	}
	f, err := os.CreateTemp(filepath.Dir(to), ".cubby-cp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error counts
		}
	}()
	_, err = io.Copy(f, r)
	if err == nil && mode != 0 {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), to)
}
