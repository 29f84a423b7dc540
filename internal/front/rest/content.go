package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

type readRequest struct {
	exchange
	PathInput
	Range string `header:"Range"`
}

func (d *door) readFile(ctx context.Context, in *readRequest) (*streamed, error) {
	if in.Path == "" {
		return nil, errs.E(errs.Invalid, "path: missing")
	}
	h := in.w.Header()
	offset, length, status := int64(0), int64(-1), http.StatusOK
	if r, ok := httpapi.ParseRange(in.Range); ok {
		f, err := d.Core.Files().Stat(ctx, in.ID, in.Path, true)
		if err != nil {
			return nil, err
		}
		if f.Type != sandbox.RegularFile {
			return nil, notAFile(f)
		}
		if offset, length, ok = r.Resolve(f.Size); !ok {
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
