package transfer

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/core/scope"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/event"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Archive streams a directory or file. The caller closes the reader.
func (f *Files) Archive(ctx context.Context, id, name string, format sandbox.ArchiveFormat) (io.ReadCloser, error) {
	convert, ok := converters[format]
	if !ok {
		return nil, errs.E(errs.Invalid, "format: %.20q is none of tar, tar.gz, zip", string(format))
	}
	name, err := sandbox.ResolvePath(name)
	if err != nil {
		return nil, err
	}
	a, err := f.open(ctx, id)
	if err != nil {
		return nil, err
	}
	from, err := f.packing.open(ctx, func() (io.ReadCloser, error) { return a.Archive(ctx, name) })
	if err != nil {
		a.Done()
		return nil, err
	}
	from = InUse(from, a.Done)
	if convert == nil {
		return from, nil
	}
	return converted(from, f.packing.within(convert)), nil
}

// converters turn a tar into another format. Nil is the tar itself.
var converters = map[sandbox.ArchiveFormat]conversionFunc{
	sandbox.Tar:   nil,
	sandbox.TarGz: tarToGzip,
	sandbox.Zip:   tarToZip,
}

// converted runs a conversion while its result is read. Closing the result
// ends it.
func converted(from io.ReadCloser, convert conversionFunc) io.ReadCloser {
	r, w := io.Pipe()
	c := &conversion{PipeReader: r, from: from, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		buffered := bufio.NewWriterSize(w, 64<<10)
		err := convert(buffered, from)
		if err == nil {
			err = buffered.Flush()
		}
		// The reader sees the end only after the source was closed, so what
		// the source has to say about a broken stream is not lost.
		err = errors.Join(err, from.Close())
		w.CloseWithError(err)
	}()
	return c
}

type conversion struct {
	*io.PipeReader
	from io.Closer
	done chan struct{}
}

func (c *conversion) Close() error {
	_ = c.PipeReader.Close() // it cannot fail
	// A conversion that waits for its source is woken.
	select {
	case <-c.done:
	default:
		c.from.Close()
		<-c.done
	}
	return nil
}

func tarToGzip(w io.Writer, from io.Reader) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, from); err != nil {
		return err
	}
	return z.Close()
}

// tarToZip writes entries as they come. What zip has no form for (devices,
// sockets, FIFOs) is left out.
func tarToZip(w io.Writer, from io.Reader) error {
	z := zip.NewWriter(w)
	t := tar.NewReader(from)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return z.Close()
		}
		if err != nil {
			return err
		}
		if err := zipEntry(z, h, t); err != nil {
			return err
		}
	}
}

func zipEntry(z *zip.Writer, h *tar.Header, content io.Reader) error {
	out := &zip.FileHeader{Name: h.Name, Modified: h.ModTime, Method: zip.Deflate}
	out.SetMode(fs.FileMode(h.Mode).Perm())
	switch h.Typeflag {
	case tar.TypeDir:
		out.SetMode(fs.ModeDir | fs.FileMode(h.Mode).Perm())
		if out.Name == "" || out.Name == "./" || out.Name == "." {
			return nil
		}
		if out.Name[len(out.Name)-1] != '/' {
			out.Name += "/"
		}
		out.Method = zip.Store
		_, err := z.CreateHeader(out)
		return err
	case tar.TypeSymlink:
		out.SetMode(fs.ModeSymlink | 0o777)
		out.Method = zip.Store
		w, err := z.CreateHeader(out)
		if err != nil {
			return err
		}
		_, err = io.WriteString(w, h.Linkname)
		return err
	case tar.TypeReg:
		w, err := z.CreateHeader(out)
		if err != nil {
			return err
		}
		_, err = io.Copy(w, content)
		return err
	}
	return nil
}

// Extract unpacks a tar, plain or gzipped, into a directory. What it makes
// belongs to the sandbox's user.
func (f *Files) Extract(ctx context.Context, id, name string, r io.Reader) error {
	_, err := withFile(ctx, f, id, name, func(a *Access, name string) (struct{}, error) {
		leave, err := f.packing.places.Enter(auth.From(ctx).Tenant)
		if err != nil {
			return struct{}{}, err
		}
		defer leave()
		plain, err := f.packing.plainTar(r)
		if err != nil {
			return struct{}{}, err
		}
		err = a.Extract(ctx, name, plain, a.Box.Spec.User)
		if err == nil {
			f.recorder.Note(ctx, event.New(a.Box.UID, scope.Actor(ctx), event.Extract{Path: name}))
		}
		return struct{}{}, err
	})
	return err
}

// plainTar takes the compression off, which it knows by the first bytes. A few
// bytes can hold very much: what decompresses does so in its turn.
func (p *packing) plainTar(r io.Reader) (io.Reader, error) {
	const pieces = 64 << 10
	head := make([]byte, 2)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	r = io.MultiReader(bytes.NewReader(head[:n]), r)
	if !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return bufio.NewReaderSize(r, pieces), nil
	}
	p.turns <- struct{}{} // whoever has one works and gives it back
	defer func() { <-p.turns }()
	z, err := gzip.NewReader(bufio.NewReaderSize(pausedReader{r, p}, pieces))
	if err != nil {
		return nil, errs.E(errs.Invalid, "the archive is not a gzipped tar").Because(err)
	}
	return bufio.NewReaderSize(&gunzip{z, p}, pieces), nil
}

// gunzip says what a broken archive is: the caller's mistake.
type gunzip struct {
	z *gzip.Reader
	p *packing
}

func (g *gunzip) Read(p []byte) (int, error) {
	g.p.turns <- struct{}{}
	defer func() { <-g.p.turns }()
	n, err := g.z.Read(p)
	if errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errs.E(errs.Invalid, "the archive is damaged or cut off").Because(err)
	}
	return n, err
}
