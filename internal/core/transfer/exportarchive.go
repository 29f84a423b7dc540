package transfer

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"path"
	"strings"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Archives of exported directories are unpacked on machines of people, so their
// names and links lead nowhere but into the directory that they are named for.

// exportFormats turn the tar of a directory's content into an archive of the
// directory.
var exportFormats = map[sandbox.ArchiveFormat]func(w io.Writer, from io.Reader, base string) error{
	sandbox.Zip:   exportZip,
	sandbox.TarGz: exportTarGz,
}

func exportZip(w io.Writer, from io.Reader, base string) error {
	z := zip.NewWriter(w)
	if err := exportEntries(from, base, func(h *tar.Header, content io.Reader) error { return zipEntry(z, h, content) }); err != nil {
		return err
	}
	return z.Close()
}

func exportTarGz(w io.Writer, from io.Reader, base string) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	err = exportEntries(from, base, func(h *tar.Header, content io.Reader) error {
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(t, content)
		return err
	})
	if err == nil {
		err = t.Close()
	}
	if err != nil {
		return err
	}
	return z.Close()
}

// exportEntries gives the entries of a tar with names below base. What is
// neither a file, a directory nor a link that stays inside is left out.
func exportEntries(from io.Reader, base string, entry func(h *tar.Header, content io.Reader) error) error {
	base = plainName(base)
	if err := entry(&tar.Header{Typeflag: tar.TypeDir, Name: base + "/", Mode: 0o755}, strings.NewReader("")); err != nil {
		return err
	}
	t := tar.NewReader(from)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := plainName(h.Name)
		if name == "" {
			continue
		}
		out := &tar.Header{Typeflag: h.Typeflag, Name: base + "/" + name, Mode: h.Mode & 0o777, ModTime: h.ModTime}
		switch h.Typeflag {
		case tar.TypeDir:
			out.Name += "/"
		case tar.TypeReg:
			out.Size = h.Size
		case tar.TypeSymlink:
			if !staysInside(name, h.Linkname) {
				continue
			}
			out.Linkname = h.Linkname
		default:
			continue
		}
		if err := entry(out, t); err != nil {
			return err
		}
	}
}

// plainName makes a name of the guest's one that no program unpacks elsewhere:
// relative, without "..", without backslashes and drive letters, which separate
// on some machines. "" is nothing.
func plainName(name string) string {
	name = strings.Map(func(c rune) rune {
		if c == '\\' || c < ' ' || c == 0x7f {
			return '_'
		}
		return c
	}, name)
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if len(name) >= 2 && name[1] == ':' {
		name = name[:1] + "_" + name[2:]
	}
	return name
}

// staysInside reports whether a link leads to something below the directory
// that its name is relative to. ".." counts only at the beginning of the target:
// later it could climb from where another link leads.
func staysInside(name, target string) bool {
	if target == "" || target[0] == '/' || strings.ContainsAny(target, "\\\x00") || len(target) >= 2 && target[1] == ':' {
		return false
	}
	up, begun := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "..":
			if begun {
				return false
			}
			up++
		case "", ".":
		default:
			begun = true
		}
	}
	return up <= strings.Count(name, "/")
}
