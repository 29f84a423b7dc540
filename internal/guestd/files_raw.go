package guestd

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// File contents and archives are plain HTTP bodies:
//
//	GET /v1/files?path=&offset=&length=&within=            a file's bytes
//	PUT /v1/files?path=&mode=&append=&parents=&user=       its new bytes
//	GET /v1/archive?path=&within=                          a directory as tar
//	GET /v1/archive?system=true                            the root filesystem as tar
//	PUT /v1/archive?path=&user=                            a tar into a directory
//
// With within, a directory, the path is refused when it leads out of it.
// headerFile describes the file as base64 of a guest.v1.File. An archive that
// breaks off says why in trailers named as the headers of errors; a file's
// content that breaks off closes the connection.
const headerFile = "Cubby-File"

const headerErrorMessage = "Cubby-Error-Message"

// register adds the raw paths.
func (f *fileService) register(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/files", f.readFile)
	mux.HandleFunc("PUT /v1/files", upload(f.writeFile))
	mux.HandleFunc("GET /v1/archive", f.readArchive)
	mux.HandleFunc("PUT /v1/archive", upload(f.writeArchive))
}

func (f *fileService) readFile(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	offset, err := queryInt(q.Get("offset"), 0)
	if err != nil {
		writeError(w, err)
		return
	}
	length, err := queryInt(q.Get("length"), -1)
	if err != nil {
		writeError(w, err)
		return
	}
	read := f.tree.Read
	if dir := q.Get("within"); dir != "" {
		read = func(ctx context.Context, name string, offset, length int64) (io.ReadCloser, sandbox.File, error) {
			return f.tree.ReadWithin(ctx, dir, name, offset, length)
		}
	}
	body, file, err := read(r.Context(), q.Get("path"), offset, length)
	if err != nil {
		writeError(w, err)
		return
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	setFile(w, file)
	// A file that does not know its size is sent in chunks.
	if file.Size > 0 {
		n := max(file.Size-offset, 0)
		if length >= 0 {
			n = min(n, length)
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	}
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (f *fileService) writeFile(ctx context.Context, r *http.Request) (sandbox.File, error) {
	q := r.URL.Query()
	mode, err := strconv.ParseUint(defaultTo(q.Get("mode"), "0"), 8, 32)
	if err != nil || mode > 0o777 {
		return sandbox.File{}, errs.E(errs.Invalid, "malformed mode").Hint("a mode is octal, 0 to 777")
	}
	replaces, err := hex.DecodeString(q.Get("replaces"))
	if err != nil {
		return sandbox.File{}, errs.E(errs.Invalid, "malformed digest of what is replaced")
	}
	if len(replaces) == 0 {
		replaces = nil
	}
	return f.tree.Write(ctx, q.Get("path"), r.Body, sandbox.FileWrite{
		Replaces: replaces,

		Mode:    fs.FileMode(mode),
		Append:  q.Get("append") == "true",
		Parents: q.Get("parents") == "true",
		User:    q.Get("user"),
		Maker:   q.Get("maker"),
	})
}

func (f *fileService) readArchive(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	archive := f.tree.Archive
	if dir := q.Get("within"); dir != "" {
		archive = func(ctx context.Context, name string) (io.ReadCloser, error) {
			return f.tree.ArchiveWithin(ctx, dir, name)
		}
	}
	if q.Get("system") == "true" {
		archive = func(ctx context.Context, _ string) (io.ReadCloser, error) { return f.tree.ArchiveSystem(ctx) }
	}
	body, err := archive(r.Context(), q.Get("path"))
	if err != nil {
		writeError(w, err)
		return
	}
	defer body.Close()
	h := w.Header()
	h.Set("Content-Type", "application/x-tar")
	h.Set("Trailer", headerErrorKind+", "+headerErrorMessage)
	if _, err := io.CopyBuffer(w, body, make([]byte, rawBuffer)); err != nil {
		if gone(err) {
			panic(http.ErrAbortHandler)
		}
		info := public(proc.Classify(err, "archive"))
		h.Set(headerErrorKind, string(info.Kind))
		h.Set(headerErrorMessage, base64.StdEncoding.EncodeToString([]byte(info.Message)))
	}
}

func (f *fileService) writeArchive(ctx context.Context, r *http.Request) (sandbox.File, error) {
	q := r.URL.Query()
	if err := f.tree.Extract(ctx, q.Get("path"), r.Body, q.Get("user")); err != nil {
		return sandbox.File{}, err
	}
	return f.tree.Stat(ctx, q.Get("path"), true)
}

const rawBuffer = 256 << 10

// upload makes a handler of something that eats a body. An error is answered
// while the body may still be coming: the host reads the answer, stops sending
// and closes. Were the connection closed from this side, the host could see a
// broken pipe in place of the answer.
func upload(act func(ctx context.Context, r *http.Request) (sandbox.File, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			writeError(w, err)
			return
		}
		file, err := act(r.Context(), r)
		if err != nil {
			writeError(w, proc.Classify(err, "upload"))
			_ = rc.Flush()
			_, _ = io.Copy(io.Discard, r.Body)
			return
		}
		setFile(w, file)
		w.WriteHeader(http.StatusNoContent)
	}
}

func setFile(w http.ResponseWriter, file sandbox.File) {
	if b, err := proto.Marshal(wireFile(file)); err == nil {
		w.Header().Set(headerFile, base64.StdEncoding.EncodeToString(b))
	}
}

func queryInt(s string, missing int64) (int64, error) {
	if s == "" {
		return missing, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, errs.E(errs.Invalid, "malformed offset or length")
	}
	return n, nil
}

func defaultTo(s, missing string) string {
	if s == "" {
		return missing
	}
	return s
}
