package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/embedded"
)

// bare is an OCI runtime without cubby.
type bare struct {
	name string
	path string
	args []string // before the subcommand
	// hide keeps version 2 of hybrid cgroups from it, which crun does not
	// bear.
	hide *hidden
}

// runtimes finds the bare runtimes of this machine and says what is missing.
func (b *bench) runtimes() []bare {
	var found []bare
	root := func(name string) []string { return []string{"--root=" + filepath.Join(b.Scratch, "floor", name)} }
	if dir, err := b.ensureDir("programs"); err == nil {
		if path, err := unpackRunsc(dir); err != nil {
			b.note("no bare runsc: %v", err)
		} else {
			found = append(found, bare{name: "runsc", path: path, args: append(root("runsc"),
				"--platform=systrap", "--network=none", "--ignore-cgroups", "--overlay2=root:memory")})
		}
	}
	var hide *hidden
	for _, name := range []string{"crun", "runc"} {
		path, err := exec.LookPath(name)
		if err != nil {
			b.note("no bare %s: not installed", name)
			continue
		}
		r := bare{name: name, path: path, args: root(name)}
		if name == "crun" {
			if _, err := os.Stat(unified); err == nil {
				if hide, err = hideUnified(b.Scratch); err != nil {
					b.note("no bare crun: %v", err)
					continue
				}
				r.hide = hide
			}
		}
		found = append(found, r)
	}
	return found
}

func unpackRunsc(dir string) (string, error) {
	p, err := embedded.Open(embedded.Runsc)
	if err != nil {
		return "", err
	}
	return p.Unpack(dir)
}

func closeRuntimes(list []bare) {
	for _, r := range list {
		if r.hide != nil {
			r.hide.close()
		}
		// runsc leaves a mount in its root, which could not be removed then.
		_ = unix.Unmount(filepath.Join(r.root(), "null-netns"), unix.MNT_DETACH)
	}
}

// root is where the runtime keeps its state.
func (r bare) root() string { return strings.TrimPrefix(r.args[0], "--root=") }

// bundle writes an OCI bundle that runs argv on the image's tree, read-only.
func (b *bench) bundle(name string, argv ...string) (string, error) {
	dir, err := b.ensureDir("floor", "bundle-"+name)
	if err != nil {
		return "", err
	}
	namespaces := []specs.LinuxNamespace{}
	for _, ns := range []specs.LinuxNamespaceType{
		specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.NetworkNamespace,
	} {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: ns})
	}
	spec := specs.Spec{
		Version:  "1.0.2",
		Hostname: "floor",
		Root:     &specs.Root{Path: filepath.Join(b.image.Dir), Readonly: true},
		Process: &specs.Process{
			Args: argv, Cwd: "/", NoNewPrivileges: true,
			Env:          []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Capabilities: &specs.LinuxCapabilities{},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=65536k"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777", "size=65536k"}},
		},
		Linux: &specs.Linux{Namespaces: namespaces},
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600)
}

// call runs the runtime once, to its end.
func (r bare) call(ctx context.Context, args ...string) error {
	if err := os.MkdirAll(r.root(), 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.path, append(append([]string{}, r.args...), args...)...)
	// What the sandbox leaves open must not keep us waiting.
	cmd.WaitDelay = time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := cmd.Start
	if r.hide != nil {
		start = func() error { return r.hide.do(cmd.Start) }
	}
	if err := start(); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return fmt.Errorf("%s: %w: %s", r.name, err, line)
	}
	return nil
}

// run is `RUNTIME run`: create, run `true`, delete.
func (r bare) run(ctx context.Context, bundle, id string) error {
	return r.call(ctx, "run", "--bundle="+bundle, id)
}
