package httpapi

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// CopyBuffer is the piece in which bodies are copied.
const CopyBuffer = 32 << 10

// ArchiveTypes are the media types of archives.
var ArchiveTypes = map[sandbox.ArchiveFormat]string{
	sandbox.Tar: "application/x-tar", sandbox.TarGz: "application/gzip", sandbox.Zip: "application/zip",
}

// Abort breaks the connection of a raw response that could not be completed, so
// that the client does not take a part for the whole. A nil error is none.
func (s *Server) Abort(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, errs.Canceled) {
		return
	}
	s.LogInternal(ctx, err)
	panic(http.ErrAbortHandler)
}

// Gone marks an error of the client's connection: nobody is left to tell.
func Gone(err error) error { return errs.E(errs.Canceled, "the client went away").Because(err) }

// Copy streams a body to the client. When the source fails the connection is
// broken, so that a part is not taken for the whole; an error of the client is
// returned.
func (s *Server) Copy(ctx context.Context, w http.ResponseWriter, r io.Reader) (int64, error) {
	buf := make([]byte, CopyBuffer)
	var total int64
	for {
		n, rerr := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return total, err
			}
			total += int64(n)
		}
		if errors.Is(rerr, io.EOF) {
			return total, nil
		}
		if rerr != nil {
			s.Abort(ctx, rerr)
			return total, rerr
		}
	}
}

// SendDownload streams a download and closes it.
func (s *Server) SendDownload(w http.ResponseWriter, r *http.Request, file *transfer.Download) {
	defer file.Close()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if file.Dir {
		h.Set("Content-Type", ArchiveTypes[file.Format])
	}
	h.Set("Cache-Control", "no-store")
	if disposition := mime.FormatMediaType("attachment", map[string]string{"filename": file.Name}); disposition != "" {
		h.Set("Content-Disposition", disposition)
	}
	if file.Size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(file.Size, 10))
	}
	if !file.ModTime.IsZero() {
		h.Set("Last-Modified", file.ModTime.UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	n, err := s.Copy(r.Context(), w, file)
	if err != nil || file.Size >= 0 && n != file.Size {
		// It is not whole: only a broken connection can tell now.
		panic(http.ErrAbortHandler)
	}
}
