package cli

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

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
)

func (a *app) cpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cp SOURCE… TARGET",
		Short: "copy files and directories in and out of sandboxes, and between them",
		Long: `ID:path is in a sandbox, another path is here; "-" is the input or the output.
Paths in a sandbox are relative to /workspace. As with cp, a target that is a
directory gets the source in it, and "dir/." means what is in dir; several sources
need such a target. A directory that is copied to "-" comes as tar.`,
		Example: `  cubby cp data.csv my-box:/workspace/
  cubby cp *.csv project my-box:
  cubby cp my-box:results other-box:/home/sandbox ./out
  cubby cp my-box:results other-box:
  cubby cp my-box:plot.png - | display`,
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: a.completePlaces,
		RunE: func(cmd *cobra.Command, args []string) error {
			places := make([]place, len(args))
			for i, arg := range args {
				places[i] = parsePlace(arg)
				box, err := a.resolve(cmd.Context(), places[i].box, false)
				if err != nil {
					return err
				}
				places[i].box = box
			}
			last := len(places) - 1
			sources, to := places[:last], places[last]
			if len(sources) > 1 {
				if err := a.needDirectory(cmd.Context(), to); err != nil {
					return err
				}
			}
			for _, from := range sources {
				if err := a.copy(cmd, from, to); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// copy copies one source.
func (a *app) copy(cmd *cobra.Command, from, to place) error {
	switch {
	case from.box == "" && to.box != "":
		return a.copyIn(cmd.Context(), from.path, to)
	case from.box != "" && to.box == "":
		return a.copyOut(cmd.Context(), from, to.path)
	case from.box != "":
		return a.copyAcross(cmd.Context(), from, to)
	}
	return usageError{cmd, errors.New("write a path in a sandbox as ID:path; cubby copies nothing from here to here")}
}

// needDirectory fails unless a target can take several sources.
func (a *app) needDirectory(ctx context.Context, to place) error {
	if to.box == "" {
		if info, err := os.Stat(to.path); err != nil || !info.IsDir() {
			return fmt.Errorf("%s is no directory: several sources need one", to.path)
		}
		return nil
	}
	stat, err := a.client().Files(to.box).Stat(ctx, to.path)
	switch {
	case err == nil && stat.Type == client.Directory:
		return nil
	case err == nil, errors.Is(err, client.NotFound) && strings.Contains(err.Error(), "no such file"):
		return fmt.Errorf("%s is no directory of %s: several sources need one", to.path, to.box)
	}
	return err
}

// place is a path here, or in a sandbox.
type place struct {
	box  string
	path string
}

// parsePlace takes ID:path for a sandbox's; "./a:b" is a path here.
func parsePlace(s string) place {
	box, p, ok := strings.Cut(s, ":")
	if !ok || box == "" || strings.ContainsAny(box, `/\.`) {
		return place{path: s}
	}
	if p == "" {
		p = "."
	}
	return place{box, p}
}

// copyIn copies a path here into a sandbox.
func (a *app) copyIn(ctx context.Context, from string, to place) error {
	files := a.client().Files(to.box)
	if from == "-" {
		if strings.HasSuffix(to.path, "/") || to.path == "." {
			return errors.New("the input has no name: give the target a file's path")
		}
		_, err := files.Write(ctx, to.path, a.Stdin, client.WriteOptions{NoParents: true})
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	target := to.path
	if contents := filepath.Base(from) == "." && info.IsDir() || strings.HasSuffix(from, "/."); !contents {
		if target, err = remoteTarget(ctx, files, to.path, filepath.Base(filepath.Clean(from)), info.IsDir()); err != nil {
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
func (a *app) copyAcross(ctx context.Context, from, to place) error {
	source, target := a.client().Files(from.box), a.client().Files(to.box)
	stat, err := source.Stat(ctx, from.path)
	if err != nil {
		return err
	}
	dir := stat.Type == client.Directory
	clean := path.Clean(from.path)
	where := to.path
	if contents := dir && (strings.HasSuffix(from.path, "/.") || clean == "."); !contents {
		if where, err = remoteTarget(ctx, target, to.path, path.Base(clean), dir); err != nil {
			return err
		}
	}
	if dir {
		r, err := source.Archive(ctx, from.path, "tar")
		if err != nil {
			return err
		}
		defer r.Close()
		return target.Extract(ctx, where, r)
	}
	r, err := source.Open(ctx, from.path)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = target.Write(ctx, where, r, client.WriteOptions{Mode: fs.FileMode(stat.Mode).Perm(), NoParents: true, Size: stat.Size})
	return err
}

// copyOut copies a path of a sandbox here.
func (a *app) copyOut(ctx context.Context, from place, to string) error {
	files := a.client().Files(from.box)
	stat, err := files.Stat(ctx, from.path)
	if err != nil {
		return err
	}
	dir := stat.Type == client.Directory
	if to == "-" {
		return a.copyToOutput(ctx, files, from.path, dir)
	}
	target := to
	clean := path.Clean(from.path)
	contents := strings.HasSuffix(from.path, "/.") || clean == "."
	info, err := os.Stat(to)
	if into := err == nil && info.IsDir(); into && (!dir || !contents) {
		target = filepath.Join(to, path.Base(clean))
	} else if err != nil && !dir && strings.HasSuffix(to, string(filepath.Separator)) {
		return fmt.Errorf("there is no directory %s", to)
	}
	if dir {
		return files.DownloadDir(ctx, from.path, target)
	}
	return download(ctx, files, from.path, target, fs.FileMode(stat.Mode).Perm())
}

func (a *app) copyToOutput(ctx context.Context, files *client.Files, p string, dir bool) error {
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
	_, err = io.Copy(a.Stdout, r)
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
