package sandbox

import (
	"path"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// ResolvePath makes a path of a sandbox, absolute or relative to /workspace,
// absolute and refuses what no file system can hold.
func ResolvePath(name string) (string, error) {
	if strings.ContainsRune(name, 0) {
		return "", errs.E(errs.Invalid, "a path has a NUL byte")
	}
	if len(name) > 4095 {
		return "", errs.E(errs.Invalid, "a path is longer than 4095 bytes")
	}
	if !path.IsAbs(name) {
		name = WorkspaceDir + "/" + name
	}
	return path.Clean(name), nil
}
