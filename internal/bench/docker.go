package bench

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"
)

// docker is a Docker Engine that answers, with an image of ours in it.
type docker struct {
	program string
	image   string
	// runtimes are the engine's runtimes that are worth measuring.
	version string
}

const dockerImage = "cubby-bench:true"

// findDocker returns nil when no engine answers; the note says why.
func (b *bench) findDocker(ctx context.Context) *docker {
	d := &docker{program: "docker", image: dockerImage}
	version, err := d.call(ctx, nil, "version", "--format", "{{.Server.Version}}")
	if err != nil {
		b.note("no docker figures: no Docker Engine answers (%v)", err)
		return nil
	}
	d.version = strings.TrimSpace(version)
	archive, err := trueImage(b.image.Dir)
	if err == nil {
		_, err = d.call(ctx, archive, "import", "-", dockerImage)
	}
	if err != nil {
		b.note("no docker figures: %v", err)
		return nil
	}
	b.report.Machine.Runtimes = append(b.report.Machine.Runtimes, "Docker "+d.version)
	return d
}

func (d *docker) call(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Stdin = stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		if line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n"); line != "" {
			return "", errors.New(line)
		}
		return "", err
	}
	return string(out), nil
}

func (d *docker) run(ctx context.Context) error {
	_, err := d.call(ctx, nil, "run", "--rm", "--network=none", d.image, "/bin/true")
	return err
}

// background starts a container for `docker exec`.
func (d *docker) background(ctx context.Context) (id string, remove func(), err error) {
	out, err := d.call(ctx, nil, "run", "-d", "--network=none", d.image, "/bin/sleep", "3600")
	id = strings.TrimSpace(out)
	return id, func() {
		_, _ = d.call(context.WithoutCancel(ctx), nil, "rm", "-f", id) // nothing more can be done
	}, err
}

func (d *docker) exec(ctx context.Context, id string) error {
	_, err := d.call(ctx, nil, "exec", id, "/bin/true")
	return err
}

func (d *docker) close(ctx context.Context) {
	_, _ = d.call(context.WithoutCancel(ctx), nil, "rmi", "-f", d.image) // as above
}

// trueImage packs /bin/true and /bin/sleep of a tree with the libraries that
// they need: importing all of an image would take longer than everything else.
func trueImage(dir string) (io.Reader, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // a directory: nothing is lost
	files := map[string]bool{}
	for _, name := range []string{"bin/true", "bin/sleep"} {
		if err := needs(root, name, files); err != nil {
			return nil, fmt.Errorf("image for docker: %w", err)
		}
	}
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for name := range files {
		data, err := root.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := tw.Write(data); err != nil {
			return nil, err
		}
	}
	return &buf, tw.Close()
}

// needs adds a program or library of a tree, and what it needs, to files.
func needs(root *os.Root, name string, files map[string]bool) error {
	if files[name] {
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	files[name] = true
	e, err := elf.NewFile(f)
	if err != nil {
		return err
	}
	libs, err := e.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_INTERP {
			data, err := io.ReadAll(p.Open())
			if err != nil {
				return err
			}
			if err := needs(root, strings.Trim(string(data), "/\x00"), files); err != nil {
				return err
			}
		}
	}
	for _, lib := range libs {
		found, err := findLibrary(root, lib)
		if err != nil {
			return err
		}
		if err := needs(root, found, files); err != nil {
			return err
		}
	}
	return nil
}

func findLibrary(root *os.Root, lib string) (string, error) {
	dirs := []string{"lib64", "lib", "usr/lib", "usr/lib64"}
	for _, pattern := range []string{"lib/*-linux-gnu", "usr/lib/*-linux-gnu"} {
		more, err := fs.Glob(root.FS(), pattern)
		if err != nil {
			return "", err
		}
		dirs = append(more, dirs...)
	}
	for _, dir := range dirs {
		if _, err := root.Stat(path.Join(dir, lib)); err == nil {
			return path.Join(dir, lib), nil
		}
	}
	return "", fmt.Errorf("no library %s", lib)
}
