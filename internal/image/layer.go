package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	whiteoutPrefix = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

// layerTar unpacks one tar over what is there. Whiteouts of the OCI image
// specification take files of earlier layers away; in a plain root filesystem
// their names mean nothing special. check is called now and then and can stop
// the work.
//
// Devices and FIFOs are left out: a sandbox gets its own /dev, and on the host
// they would only be traps. Extended attributes are left out too, among them
// capabilities of files unless the unpacker is to keep those. Set-id bits are kept: they mean something inside,
// and outside nobody but root can reach them.
func (u *unpacker) layerTar(ctx context.Context, r io.Reader, whiteouts bool, check func() error) error {
	clear(u.layer)
	clear(u.opaque)
	tr := tar.NewReader(r)
	body := &meter{r: tr, u: u, check: check}
	for {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return tarError(err)
		}
		if err := u.tarEntry(hdr, body, whiteouts); err != nil {
			return tarError(err)
		}
	}
}

// tarError classifies: what is not our file system's fault is the archive's.
func tarError(err error) error {
	var pathErr *fs.PathError
	var known *errs.Error
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &pathErr):
		return diskError(err)
	case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrFieldTooLong):
		return malformed("it is cut off or damaged").(*errs.Error).Because(err) //nolint:errorlint,forcetypeassert // just made
	}
	return diskError(err)
}

func (u *unpacker) tarEntry(hdr *tar.Header, body io.Reader, whiteouts bool) error {
	if u.entries++; u.entries > u.limits.entries {
		return errs.E(errs.TooLarge, "the image has more than %d files", u.limits.entries)
	}
	p, err := u.clean(hdr.Name)
	if err != nil {
		return err
	}
	if base := path.Base(p); whiteouts && strings.HasPrefix(base, whiteoutPrefix) {
		return u.whiteout(p, base)
	}
	if hdr.Typeflag == tar.TypeXGlobalHeader || ignored(hdr.Typeflag) || u.leave != nil && u.leave(p) {
		return nil
	}
	real, err := u.resolve(p)
	if err != nil {
		return err
	}
	a := attributes{
		mode: hdr.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky),
		uid:  hdr.Uid, gid: hdr.Gid, mtime: sane(hdr.ModTime),
	}
	if a.uid < 0 || a.gid < 0 || int64(a.uid) >= 1<<32-1 || int64(a.gid) >= 1<<32-1 {
		return malformed("an owner is out of range")
	}
	if u.capabilities && u.chown {
		a.capabilities = capabilitiesOf(hdr)
	}
	switch hdr.Typeflag {
	case tar.TypeDir:
		err = u.dir(real, a)
	case tar.TypeReg, tar.TypeRegA, tar.TypeGNUSparse, tar.TypeCont: //nolint:staticcheck // old archives
		err = u.file(real, body, a)
	case tar.TypeSymlink:
		err = u.symlink(real, hdr.Linkname, a)
	case tar.TypeLink:
		var target string
		if target, err = u.clean(hdr.Linkname); err == nil {
			if target, err = u.resolve(target); err == nil {
				err = u.hardlink(real, target)
			}
		}
	default:
		return malformed("an entry has the unknown type %q", hdr.Typeflag)
	}
	if err != nil {
		return err
	}
	if whiteouts {
		u.wrote(real)
	}
	return nil
}

// wrote notes a path and the directories above it as this layer's.
func (u *unpacker) wrote(real string) {
	for ; real != "." && !u.layer[real]; real = path.Dir(real) {
		u.layer[real] = true
	}
}

func ignored(typeflag byte) bool {
	return typeflag == tar.TypeChar || typeflag == tar.TypeBlock || typeflag == tar.TypeFifo
}

// whiteout removes what earlier layers have put at a path. p's last element is
// the marker.
func (u *unpacker) whiteout(p, marker string) error {
	dir := strings.TrimSuffix(p, marker)
	if marker == opaqueWhiteout {
		real, err := u.resolveDir(strings.TrimSuffix(dir, "/"))
		if err != nil {
			return err
		}
		if u.opaque[real] {
			return nil
		}
		u.opaque[real] = true
		return u.empty(real)
	}
	name := strings.TrimPrefix(marker, whiteoutPrefix)
	if strings.HasPrefix(name, whiteoutPrefix) {
		return nil // bookkeeping of a union file system
	}
	if name == "" || name == "." || name == ".." {
		return malformed("a whiteout names no file")
	}
	real, err := u.resolve(dir + name)
	if err != nil {
		return err
	}
	if u.layer[real] {
		return nil // this layer's own
	}
	return u.removeAll(real)
}

// empty removes what earlier layers have put into a directory.
func (u *unpacker) empty(dir string) error {
	list, err := fs.ReadDir(u.root.FS(), dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		real := path.Join(dir, e.Name())
		switch {
		case !u.layer[real]:
			err = u.removeAll(real)
		case e.IsDir():
			err = u.empty(real)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sane keeps times within what every file system can hold.
func sane(t time.Time) time.Time {
	if t.Unix() < 0 || t.Unix() > 1<<32 {
		return time.Unix(0, 0)
	}
	return t
}

// meter counts the bytes of files against the limit.
type meter struct {
	r       io.Reader
	u       *unpacker
	check   func() error
	checked int64
}

func (m *meter) Read(b []byte) (int, error) {
	const checkEvery = 64 << 20
	n, err := m.r.Read(b)
	m.u.bytes += int64(n)
	if m.u.bytes > m.u.limits.bytes {
		return n, errs.E(errs.TooLarge, "the image is larger than %d GiB", m.u.limits.bytes>>30)
	}
	if m.check != nil && m.u.bytes-m.checked >= checkEvery {
		m.checked = m.u.bytes
		if err := m.check(); err != nil {
			return n, err
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("read archive: %w", err)
	}
	return n, err
}
