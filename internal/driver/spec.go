package driver

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Spec is all that a driver needs to know of a sandbox.
type Spec struct {
	UID       sandbox.UID
	Isolation sandbox.Isolation
	Limits    sandbox.Limits // no zero fields

	Image    Image
	Volumes  []Volume
	Identity Identity

	// Authorities is a file of the host with the certificate authorities that
	// the sandbox trusts. The driver shows copies, which the sandbox's root may
	// change, at [AuthoritiesPath] and [TrustStorePath]; "" for none.
	Authorities string
}

// Image is what a sandbox's root filesystem begins as.
type Image struct {
	// Digest names the image wherever it is: 64 hex digits.
	Digest string
	// Dir is the image unpacked on this host: shared by all its sandboxes,
	// read-only, and never written to. Every target of [MountTargets] exists
	// in it.
	Dir string
}

// NobodysName is the host name of a sandbox without an identity.
const NobodysName = "sandbox"

// Identity is whose a sandbox is: what it calls itself, and what its commands
// are told. It is given with the spec or later, by [Driver.Identify]; until then
// a sandbox is nobody's, runs all the same, and its commands have the
// environment that the spec says.
type Identity struct {
	// ID is the sandbox's id, which is its host name; "" for nobody's.
	ID string
	// Env is the whole environment that every command inherits: the image's,
	// then cubby's, then the caller's; KEY=VALUE, no duplicates.
	Env []string
}

// Identified is a sandbox that was given an identity.
type Identified struct {
	Handle Handle
	// Warnings say of a sandbox that was restored, in words, what in it draws the
	// random numbers of its parent all the same, or lost its state over that.
	Warnings []string
}

// Volume is a directory of the host that a sandbox has. It is in place, mounted
// by its owner, from before Create until after the last run; its files carry
// the ids that the sandbox sees.
type Volume struct {
	Role VolumeRole
	Dir  string // absolute
	// ReadOnly: nothing inside can change it, while others on the host may,
	// which is seen at once.
	ReadOnly bool
}

// VolumeRole is what a volume is for.
type VolumeRole string

// The roles. A sandbox has one volume of each of the first three, and at most
// one of the others; no two volumes are the same directory. Volumes may be on
// one filesystem or on several.
const (
	// VolumeRoot is the driver's own: the changes to the root filesystem and
	// what else shall count towards the sandbox's disk. Create empties it,
	// because such changes belong to the image that they were made on.
	VolumeRoot      VolumeRole = "root"
	VolumeWorkspace VolumeRole = "workspace"
	VolumeHome      VolumeRole = "home"
	VolumeOutputs   VolumeRole = "outputs"
	VolumeUploads   VolumeRole = "uploads"
)

// DiskVolumes are the volumes of a sandbox with a disk of its own, and one that
// it has in common with others, or "": then its workspace is on that one, beside
// outputs that it writes and uploads that it reads. Both are directories of the
// host with a directory for each role.
func DiskVolumes(own, common string) []Volume {
	workspace := own
	if common != "" {
		workspace = common
	}
	volumes := []Volume{
		{Role: VolumeRoot, Dir: filepath.Join(own, "root")},
		{Role: VolumeWorkspace, Dir: filepath.Join(workspace, "workspace")},
		{Role: VolumeHome, Dir: filepath.Join(own, "home")},
	}
	if common != "" {
		volumes = append(volumes,
			Volume{Role: VolumeOutputs, Dir: filepath.Join(common, "outputs")},
			Volume{Role: VolumeUploads, Dir: filepath.Join(common, "uploads"), ReadOnly: true})
	}
	return volumes
}

// Target is where the sandbox sees a volume of this role; "" for the root's,
// which it does not see as such, and for a role that is not known.
func (r VolumeRole) Target() string {
	switch r {
	case VolumeWorkspace:
		return sandbox.WorkspaceDir
	case VolumeHome:
		return sandbox.HomeDir
	case VolumeOutputs:
		return sandbox.OutputsDir
	case VolumeUploads:
		return sandbox.UploadsDir
	case VolumeRoot:
	}
	return ""
}

// maxID is the longest host name that Linux takes.
const maxID = 64

// Validate reports what no driver can carry out, before anything is made of it.
// It looks at nothing on the host.
func (s Spec) Validate() error {
	if _, err := sandbox.ParseUID(string(s.UID)); err != nil {
		return err
	}
	l := s.Limits
	switch {
	case s.Isolation != sandbox.GVisor && s.Isolation != sandbox.Container:
		return errs.E(errs.Unsupported, "isolation %q is not known here", s.Isolation)
	case l.MemoryBytes <= 0 || l.CPUs <= 0 || l.PIDs <= 0 || l.DiskBytes <= 0 || l.OpenFiles <= 0:
		return errs.E(errs.Invalid, "a limit is missing")
	case !filepath.IsAbs(s.Image.Dir):
		return errs.E(errs.Invalid, "the image needs an absolute path")
	}
	if err := s.Identity.Validate(); err != nil {
		return err
	}
	return ValidateVolumes(s.Volumes)
}

// maxEnv bounds an environment, all together: a sandbox whose agent takes it has
// to start with it again, and the kernel takes not much more for a command.
const maxEnv = 512 << 10

// Validate reports what cannot be a host name or an environment.
func (i Identity) Validate() error {
	if len(i.ID) > maxID || strings.ContainsFunc(i.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errs.E(errs.Invalid, "the id %.80q cannot be a host name", i.ID)
	}
	total := 0
	for _, kv := range i.Env {
		name, _, found := strings.Cut(kv, "=")
		if !found || name == "" || strings.ContainsRune(kv, 0) || !utf8.ValidString(kv) {
			return errs.E(errs.Invalid, "the environment has an entry that no command can be given")
		}
		if total += len(kv) + 1; total > maxEnv {
			return errs.E(errs.Invalid, "the environment is longer than %d bytes", maxEnv)
		}
	}
	return nil
}

// ValidateVolumes is the part of [Spec.Validate] about volumes. A driver asks it
// of a handle too, which was in a store.
func ValidateVolumes(volumes []Volume) error {
	seen := make(map[VolumeRole]bool, len(volumes))
	for i, v := range volumes {
		switch {
		case v.Role != VolumeRoot && v.Role.Target() == "":
			return errs.E(errs.Unsupported, "volumes of role %q are not known here", v.Role)
		case seen[v.Role]:
			return errs.E(errs.Invalid, "two volumes have the role %s", v.Role)
		case !filepath.IsAbs(v.Dir) || filepath.Clean(v.Dir) != v.Dir:
			return errs.E(errs.Invalid, "the volume %s needs an absolute path", v.Role)
		case slices.ContainsFunc(volumes[:i], func(w Volume) bool { return w.Dir == v.Dir }):
			return errs.E(errs.Invalid, "two volumes are the same directory")
		case v.Role == VolumeRoot && v.ReadOnly:
			return errs.E(errs.Invalid, "the volume %s cannot be read-only", v.Role)
		}
		seen[v.Role] = true
	}
	for _, role := range []VolumeRole{VolumeRoot, VolumeWorkspace, VolumeHome} {
		if !seen[role] {
			return errs.E(errs.Invalid, "a sandbox needs a volume %s", role)
		}
	}
	return nil
}

// VolumeDir returns the directory of the volume with a role; "" when there is
// none.
func VolumeDir(volumes []Volume, role VolumeRole) string {
	for _, v := range volumes {
		if v.Role == role {
			return v.Dir
		}
	}
	return ""
}
