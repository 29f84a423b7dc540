package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

type readRequest struct {
	exchange
	PathInput
	Range string `header:"Range"`
}

// byteRange is what a Range header asks for; last < 0 is the end.
type byteRange struct {
	first, last int64 // first < 0: the last -first bytes
}

// parseRange reads a header of one range. Like the rest of the world it
// ignores what it does not understand: the answer is then the whole file.
func parseRange(header string) (byteRange, bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash || strings.ContainsAny(spec, ", ") {
		return byteRange{}, false
	}
	digits := func(s string) (int64, bool) {
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil && n >= 0 && s[0] != '+'
	}
	if from == "" {
		n, ok := digits(to)
		return byteRange{first: -n, last: -1}, ok && n > 0
	}
	first, ok := digits(from)
	if !ok || to == "" {
		return byteRange{first, -1}, ok
	}
	last, ok := digits(to)
	return byteRange{first, last}, ok && last >= first
}

// resolve gives offset and length within a file; ok is false when nothing of
// the file is in the range.
func (b byteRange) resolve(size int64) (offset, length int64, ok bool) {
	if b.first < 0 {
		offset = max(0, size+b.first)
		return offset, size - offset, size > 0
	}
	end := size
	if b.last >= 0 {
		end = min(size, b.last+1)
	}
	return b.first, end - b.first, b.first < size
}

func (d *door) readFile(ctx context.Context, in *readRequest) (*streamed, error) {
	if in.Path == "" {
		return nil, errs.E(errs.Invalid, "path: missing")
	}
	h := in.w.Header()
	offset, length, status := int64(0), int64(-1), http.StatusOK
	if r, ok := parseRange(in.Range); ok {
		f, err := d.Core.Files().Stat(ctx, in.ID, in.Path, true)
		if err != nil {
			return nil, err
		}
		if f.Type != sandbox.RegularFile {
			return nil, notAFile(f)
		}
		if offset, length, ok = r.resolve(f.Size); !ok {
			return stream(func() {
				h.Set("Content-Range", fmt.Sprintf("bytes */%d", f.Size))
				in.w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			}), nil
		}
		status = http.StatusPartialContent
	}
	body, f, err := d.Core.Files().Read(ctx, in.ID, d.within(ctx, in.ID, in.Path), offset, length)
	if err != nil {
		return nil, err
	}
	if length < 0 || length > f.Size-offset {
		length = max(0, f.Size-offset)
	}
	return stream(func() {
		defer body.Close()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Accept-Ranges", "bytes")
		h.Set("Cache-Control", "no-store")
		h.Set("Last-Modified", f.ModTime.UTC().Format(http.TimeFormat))
		h.Set("Content-Length", strconv.FormatInt(length, 10))
		if status == http.StatusPartialContent {
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, offset+length-1, f.Size))
		}
		in.w.WriteHeader(status)
		if in.head() {
			return
		}
		n, err := d.Copy(ctx, in.w, io.LimitReader(body, length))
		if err == nil && n < length {
			// The file shrank meanwhile: the promised length is a lie.
			panic(http.ErrAbortHandler)
		}
	}), nil
}

func notAFile(f sandbox.File) error {
	return errs.E(errs.Invalid, "not a regular file but a %s", f.Type)
}
