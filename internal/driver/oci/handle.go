package oci

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// handleVersion is what this package writes. Fields are only added; a change
// of meaning takes a new version, and every version stays readable. Version 1
// had the paths of disks in the place of volumes, and up to version 2 all paths
// were absolute.
const handleVersion = 3

// note is the content of a handle: all that is needed to start the sandbox
// again, also when the state directory was lost. Its paths are those of the host; in
// a handle they are relative to the places that they lie in.
type note struct {
	Version   int               `json:"v"`
	UID       sandbox.UID       `json:"uid"`
	Hostname  string            `json:"hostname"`
	Isolation sandbox.Isolation `json:"isolation"`
	Limits    sandbox.Limits    `json:"limits"`
	// Image is the digest of the image, which version 1 did not note.
	Image   string   `json:"image,omitempty"`
	Rootfs  string   `json:"rootfs"`
	Volumes []volume `json:"volumes"`
	Env     []string `json:"env,omitempty"`
	// Authorities is a file of the host, copied when the sandbox is created.
	Authorities string `json:"authorities,omitempty"`
	// AuthoritiesDir: the copy is a directory of several forms. Sandboxes that
	// were created before there was one have a file.
	AuthoritiesDir bool `json:"authorities_dir,omitempty"`
	// Init and Runtime are the programs of a run, which an upgrade of cubby does
	// not change under it. In a handle they are those that the sandbox was created
	// with, in its copy those of its last run, and with a memory those of that.
	Init    program `json:"init"`
	Runtime program `json:"runtime"`
	// IDBase is the first id of the host that a container's ids are mapped
	// to; 0: no user namespace. In a handle it is that of the first run: each
	// run has a range of its own, and files carry the ids that are seen inside.
	IDBase uint32 `json:"id_base,omitempty"`
}

// volume is a driver.Volume, as handles have it.
type volume struct {
	Role     driver.VolumeRole `json:"role"`
	Dir      string            `json:"dir"`
	ReadOnly bool              `json:"read_only,omitempty"`
}

// dir is where the volume with a role is; "" when there is none.
func (n note) dir(role driver.VolumeRole) string {
	i := slices.IndexFunc(n.Volumes, func(v volume) bool { return v.Role == role })
	if i < 0 {
		return ""
	}
	return n.Volumes[i].Dir
}

// root is the directory for the changes to the root filesystem.
func (n note) root() string { return n.dir(driver.VolumeRoot) }

// name is the host name: a sandbox of nobody has one that says nothing, and above
// all not the host's.
func (n note) name() string { return cmp.Or(n.Hostname, driver.NobodysName) }

// program is an executable that a sandbox depends on.
type program struct {
	Kind string `json:"kind"` // "runsc", "crun", "runc", "cubby-init"
	Path string `json:"path"`
	// Digest names an embedded program; empty for one of the host.
	Digest string `json:"digest,omitempty"`
}

// handle is how a note is kept.
func (p places) handle(n note) (driver.Handle, error) {
	n.Version = handleVersion
	if err := n.each(func(path string) (string, error) { return p.noted(path), nil }); err != nil {
		return nil, err
	}
	return json.Marshal(n)
}

// parse reads a handle. errs.Invalid for what this package cannot have
// written: a handle comes from the store, and paths are removed by it.
func (p places) parse(h driver.Handle) (note, error) {
	var n note
	if err := json.Unmarshal(h, &n); err != nil {
		return note{}, errs.E(errs.Invalid, "malformed handle").Because(err)
	}
	switch n.Version {
	case handleVersion, 2:
	case 1:
		var disks disksV1
		if err := json.Unmarshal(h, &disks); err != nil {
			return note{}, errs.E(errs.Invalid, "malformed handle").Because(err)
		}
		n.Volumes = volumesOf(driver.DiskVolumes(disks.Disk, disks.Shared))
	default:
		return note{}, errs.E(errs.Unsupported, "handle of version %d", n.Version).
			Hint("it was written by a newer cubby; run that one")
	}
	if _, err := sandbox.ParseUID(string(n.UID)); err != nil {
		return note{}, errs.E(errs.Invalid, "malformed handle").Because(err)
	}
	if n.Isolation != sandbox.GVisor && n.Isolation != sandbox.Container {
		return note{}, errs.E(errs.Invalid, "malformed handle: isolation %q", n.Isolation)
	}
	if err := n.each(p.found); err != nil {
		return note{}, err
	}
	if n.Version < handleVersion {
		p.moved(&n)
		n.Version = handleVersion
	}
	volumes := make([]driver.Volume, len(n.Volumes))
	for i, v := range n.Volumes {
		volumes[i] = driver.Volume(v)
	}
	if err := driver.ValidateVolumes(volumes); err != nil {
		return note{}, fmt.Errorf("malformed handle: %w", err)
	}
	return n, nil
}

func noteOf(spec driver.Spec) note {
	return note{
		UID: spec.UID, Hostname: spec.Identity.ID, Isolation: spec.Isolation, Limits: spec.Limits,
		Image: spec.Image.Digest, Rootfs: spec.Image.Dir, Env: spec.Identity.Env, Authorities: spec.Authorities, AuthoritiesDir: true,
		Volumes: volumesOf(spec.Volumes),
	}
}

func volumesOf(volumes []driver.Volume) (list []volume) {
	for _, v := range volumes {
		list = append(list, volume(v))
	}
	return list
}

// disksV1 are the disks in a handle of version 1: the sandbox's own, and one
// that it has in common with others, or "".
type disksV1 struct {
	Disk   string `json:"disk"`
	Shared string `json:"shared"`
}

// box is where one sandbox's things are.
type box struct {
	uid sandbox.UID
	dir string // StateDir/<uid>

	programs *memory.Programs
	places   places
}

func (d *Driver) box(uid sandbox.UID) box {
	return box{uid: uid, dir: filepath.Join(d.cfg.StateDir, string(uid)), programs: &d.kept, places: d.places}
}

func (b box) path(name string) string { return filepath.Join(b.dir, name) }

func (b box) bundle() string  { return b.path("bundle") }
func (b box) runtime() string { return b.path("runtime") } // the runtime's own notes
func (b box) channel() string { return b.path("channel") }
func (b box) socket() string  { return b.path("channel/host.sock") }

// memory is what is kept of it while it sleeps.
func (b box) memory() memory.Memory { return memory.Of(b.dir, b.programs) }

func (b box) runFile() string { return b.path("run.json") }

// noteFile is a copy of the handle without its env, for what has to look at
// all sandboxes.
func (b box) noteFile() string { return b.path("note.json") }
func (b box) log() string      { return b.path("bundle/log") }
func (b box) pidFile() string  { return b.path("bundle/pid") }
