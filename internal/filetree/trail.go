package filetree

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/errs"
)

// trail is who, beside root, decided where a name leads: whoever can put a symbolic link
// in its way. A change of the tree is theirs too, so it is made only where they could
// make it themselves. Else a link to /usr/local/bin would make a caller, who wrote to the
// link's own name, give its maker a program that root runs.
type trail []linkOwner

type linkOwner struct {
	link     string
	uid, gid uint32
}

// nobody owns the links in directories of root's that everybody can change.
const nobody = 65534

// pass notes who decided about a link of an open directory. Whoever can replace a link
// of root's has done so.
func (l *trail) pass(name string, dir *os.File, link unix.Stat_t) error {
	if l == nil {
		return nil
	}
	var in unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &in); err != nil {
		return err
	}
	switch by := (linkOwner{name, link.Uid, link.Gid}); {
	case link.Uid != 0:
		*l = append(*l, by)
	case in.Uid != 0:
		*l = append(*l, linkOwner{name, in.Uid, nobody})
	case in.Mode&0o022 != 0 && in.Mode&unix.S_ISVTX == 0:
		by.uid, by.gid = nobody, nobody
		if in.Mode&0o002 == 0 {
			by.gid = in.Gid
		}
		*l = append(*l, by)
	}
	return nil
}

// may reports whether the permission bits of a file let the owner of a link write it.
// That a link has a group says that its owner is in it; root's it can have by other means.
func (o linkOwner) may(st unix.Stat_t) bool {
	return st.Uid == o.uid && st.Mode&0o200 != 0 || st.Gid == o.gid && st.Gid != 0 && st.Mode&0o020 != 0 || st.Mode&0o002 != 0
}

// change refuses to add, replace or remove the name of a place.
func (l trail) change(p *place) error {
	if len(l) == 0 {
		return nil
	}
	var dir unix.Stat_t
	if err := unix.Fstat(int(p.dir.Fd()), &dir); err != nil {
		return err
	}
	for _, o := range l {
		own := !p.found || p.base == "." || dir.Mode&unix.S_ISVTX == 0 || p.st.Uid == o.uid || dir.Uid == o.uid
		if !o.may(dir) || !own {
			return o.refused()
		}
	}
	return nil
}

// write refuses to write a file itself.
func (l trail) write(st unix.Stat_t) error {
	for _, o := range l {
		if !o.may(st) {
			return o.refused()
		}
	}
	return nil
}

func (o linkOwner) refused() error {
	return errs.E(errs.Forbidden, "the symbolic link %s, which user %d made, leads to where that user may not write", strings.ToValidUTF8(o.link, "\uFFFD"), o.uid).
		Hint("name the place that it leads to, if that is what you want to change")
}

// toWrite is toChange for an open file that is written itself.
func (p *place) toWrite(f *os.File) error {
	if len(p.via) == 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	return p.via.write(st)
}
