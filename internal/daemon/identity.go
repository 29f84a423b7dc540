package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/instance"
)

// identify returns which instance of cubby a data directory is, and takes it into use:
// no copy of the directory is in use on this host then.
func (d *Daemon) identify(dirs dirs) (instance.Instance, error) {
	formerly := ""
	for _, made := range []string{dirs.sealKey, dirs.database} {
		if _, err := os.Lstat(made); !errors.Is(err, fs.ErrNotExist) {
			formerly = formerCgroups(dirs.data)
		}
	}
	is, err := instance.Of(dirs.data, formerly)
	if err != nil || os.Geteuid() != 0 { // only root runs sandboxes
		return is, err
	}
	claim, err := is.Claim(instance.Registry, dirs.data, func() (bool, error) { return oci.Runs(is.Cgroups) })
	switch {
	case err == nil:
		d.closers = append(d.closers, claim)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		d.log.Warn("a copy of the data directory that is in use on this host would not be noticed", "err", err)
	default:
		return is, err
	}
	// A copy that was made before directories had an identity.
	switch uid, err := oci.RunsElsewhere(dirs.state, is.Cgroups); {
	case err != nil:
		return is, err
	case uid != "":
		return is, errs.E(errs.Conflict, "%s is a copy of a data directory whose sandboxes still run (%s)", dirs.data, uid).
			Hint("stop or remove them with the daemon of that directory first; a copy that is to be used beside it is made with cubby backup and cubby restore")
	}
	return is, nil
}

// formerCgroups is the cgroup below which the sandboxes of a directory are that was
// made before directories had an identity.
func formerCgroups(dataDir string) string {
	sum := sha256.Sum256([]byte(dataDir))
	return "cubby-" + hex.EncodeToString(sum[:4])
}
