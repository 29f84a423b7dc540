package guestd

import (
	_ "embed"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loginProfile makes a login shell keep the PATH that it was started with.
//
//go:embed profile.sh
var loginProfile []byte

const (
	profileDir  = "/etc/profile.d"
	profileName = "cubby.sh"
)

// writeProfile gives an image that has /etc/profile.d the loginProfile. A file
// of that name which is there already stays as it is. Without it nothing but
// the PATH of login shells is missing, so errors do not matter.
func writeProfile(dir string) {
	f, err := os.OpenFile(filepath.Join(dir, profileName), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_ = f.Chmod(0o644) // whatever the umask is
	_, _ = f.Write(loginProfile)
}
