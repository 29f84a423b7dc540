package oci

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/embedded"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// programs finds the executables that sandboxes are made of.
type programs struct {
	dir                    string
	init, runsc, container string // named by the configuration; "" is the default

}

const (
	runsc = "runsc"
	crun  = "crun"
	runc  = "runc"
)

// agent returns cubby-init.
func (p *programs) agent() (program, error) { return p.carried(embedded.CubbyInit, p.init) }

// runtime returns the program for an isolation; errs.Unsupported when this
// host has none.
func (p *programs) runtime(isolation sandbox.Isolation) (program, error) {
	if isolation == sandbox.GVisor {
		return p.carried(runsc, p.runsc)
	}
	names := []string{crun, runc}
	if p.container != "" {
		names = []string{p.container}
	}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return program{}, err
		}
		kind := crun
		if strings.Contains(filepath.Base(path), runc) {
			kind = runc
		}
		return program{Kind: kind, Path: path}, nil
	}
	return program{}, errs.E(errs.Unsupported, "isolation container needs crun or runc, and the host has neither").
		Hint("install one (apt-get install crun), or use isolation gvisor, which cubby carries")
}

// carried returns an embedded program, unpacked, unless override names
// another one.
func (p *programs) carried(name, override string) (program, error) {
	if override != "" {
		path, err := filepath.Abs(override)
		return program{Kind: name, Path: path}, err
	}
	e, err := embedded.Open(name)
	if err != nil {
		return program{}, err
	}
	path, err := e.Unpack(p.dir)
	if err != nil {
		return program{}, err
	}
	return program{Kind: name, Path: path, Digest: e.Digest}, nil
}

// describe is for people: name, version, and where it comes from.
func (p program) describe() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.Path, "--version").Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		line = p.Kind
	}
	if p.Digest != "" {
		return line + " (embedded)"
	}
	return line + " (" + p.Path + ")"
}

// provide gives a sandbox the programs of today where its own are gone: after an
// upgrade of the host's runtime, or when the data was moved. With renew it gets
// today's of those that cubby carries in any case, all of them or none: an agent
// counts on the runtime of its own time.
func (p *programs) provide(n *note, renew bool) error {
	before := *n
	for _, needed := range []struct {
		program *program
		find    func() (program, error)
	}{
		{&n.Init, p.agent},
		{&n.Runtime, func() (program, error) { return p.runtime(n.Isolation) }},
	} {
		_, gone := os.Stat(needed.program.Path)
		if gone != nil && !renew && !errors.Is(gone, fs.ErrNotExist) && !errors.Is(gone, unix.ENOTDIR) {
			return errs.E(errs.Unavailable, "the sandbox's programs cannot be looked for").Because(gone)
		}
		if gone == nil && (!renew || needed.program.Digest == "") {
			continue
		}
		found, err := needed.find()
		switch {
		case err == nil:
			*needed.program = found
		case gone != nil:
			return err
		case n.Init != before.Init: // which may be gone
			if _, gone := os.Stat(before.Init.Path); gone != nil {
				return err
			}
			n.Init = before.Init
		}
	}
	return nil
}

// prune removes unpacked programs that no sandbox or snapshot needs and that
// are not this cubby's own. Where one note cannot be read, nothing is removed.
func (d *Driver) prune() error {
	keep := make(map[string]bool)
	for _, name := range []string{embedded.CubbyInit, embedded.Runsc} {
		if e, err := embedded.Open(name); err == nil {
			keep[e.Digest] = true
		}
	}
	ofNote := func(data []byte, err error) error {
		if err != nil {
			return err
		}
		n, err := d.places.parse(data)
		keep[n.Init.Digest], keep[n.Runtime.Digest] = true, true
		return err
	}
	entries, err := os.ReadDir(d.cfg.StateDir)
	if err != nil {
		return err
	}
	var memories []memory.Memory
	for _, e := range entries {
		uid, err := sandbox.ParseUID(e.Name())
		if err != nil {
			continue
		}
		if err := ofNote(os.ReadFile(d.box(uid).noteFile())); err != nil {
			return err
		}
		// A crash of the host may have left an older note than that of the memory.
		memories = append(memories, d.box(uid).memory())
	}
	snapshots, err := d.snapshots()
	if err != nil {
		return err
	}
	for _, name := range snapshots {
		memories = append(memories, d.snapshotOf(name))
	}
	for _, m := range memories {
		// One without a note is none, or half a one.
		if err := ofNote(m.Note()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return embedded.Prune(d.cfg.RuntimesDir, keep)
}
