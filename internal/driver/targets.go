package driver

import (
	"io/fs"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Target is a path that every unpacked image holds so that a driver can mount
// over it. Runtimes create missing mount targets inside the root filesystem;
// images are shared and never written to, so whoever unpacks one creates them
// all beforehand.
type Target struct {
	Path string // absolute, clean
	// Dir: a directory; otherwise an empty regular file.
	Dir      bool
	Mode     fs.FileMode // permission bits, and fs.ModeSticky
	UID, GID int
}

// Targets of the things that cubby itself puts into a sandbox.
const (
	ChannelDir = "/run/cubby"       // the guest's end of the channel
	InitPath   = "/sbin/cubby-init" // the agent's program
	StateDir   = "/.cubby"          // the agent's own notes; root only
	// AuthoritiesDir holds the host's certificate authorities: a sandbox trusts
	// whom its host trusts, whatever its image knows.
	AuthoritiesDir  = "/etc/cubby"
	AuthoritiesPath = AuthoritiesDir + "/ca-certificates.crt" // PEM
	// TrustStorePath is the same for Java: PKCS #12 without a password.
	TrustStorePath = AuthoritiesDir + "/ca-certificates.p12"
	UserData       = "/mnt/user-data" // uploads and outputs, linked to the disk
)

// MountTargets lists every path that a driver may mount over, parents first.
// A target that an image has already keeps the image's mode and owner, except
// that one of the wrong type is replaced.
func MountTargets() []Target {
	user := sandbox.UserID
	return []Target{
		{Path: "/proc", Dir: true, Mode: 0o755},
		{Path: "/sys", Dir: true, Mode: 0o755},
		{Path: "/dev", Dir: true, Mode: 0o755},
		{Path: "/dev/pts", Dir: true, Mode: 0o755},
		{Path: "/dev/shm", Dir: true, Mode: 0o777 | fs.ModeSticky},
		{Path: "/dev/mqueue", Dir: true, Mode: 0o777 | fs.ModeSticky},
		{Path: "/tmp", Dir: true, Mode: 0o777 | fs.ModeSticky},
		{Path: "/run", Dir: true, Mode: 0o755},
		{Path: ChannelDir, Dir: true, Mode: 0o755},
		{Path: "/sys/fs", Dir: true, Mode: 0o755},
		{Path: "/sys/fs/cgroup", Dir: true, Mode: 0o755},
		{Path: StateDir, Dir: true, Mode: 0o700},
		{Path: "/root", Dir: true, Mode: 0o700},
		{Path: sandbox.WorkspaceDir, Dir: true, Mode: 0o755, UID: user, GID: user},
		{Path: "/home", Dir: true, Mode: 0o755},
		{Path: sandbox.HomeDir, Dir: true, Mode: 0o755, UID: user, GID: user},
		{Path: "/mnt", Dir: true, Mode: 0o755},
		{Path: UserData, Dir: true, Mode: 0o755},
		{Path: UserData + "/uploads", Dir: true, Mode: 0o755, UID: user, GID: user},
		{Path: UserData + "/outputs", Dir: true, Mode: 0o755, UID: user, GID: user},
		{Path: "/etc", Dir: true, Mode: 0o755},
		{Path: "/etc/hosts", Mode: 0o644},
		{Path: "/etc/hostname", Mode: 0o644},
		{Path: "/etc/resolv.conf", Mode: 0o644},
		{Path: AuthoritiesDir, Dir: true, Mode: 0o755},
		{Path: AuthoritiesPath, Mode: 0o644},
		{Path: InitPath, Mode: 0o755},
	}
}
