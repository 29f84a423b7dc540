package rest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"mime"
	"net/http"
	"path"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func (d *door) archiveRoutes() {
	const archivePath = filesPath + "/archive"
	archives := httpapi.Content{}
	for _, t := range httpapi.ArchiveTypes {
		archives[t] = httpapi.Media(t, nil)[t]
	}
	register(d, operation{
		id: "download-archive", method: http.MethodGet, path: archivePath, tag: "files", summary: "Download a directory as an archive",
		responses: map[string]*huma.Response{"200": {Description: "The archive, streamed", Content: archives}},
	}, d.downloadArchive)
	register(d, operation{
		id: "upload-archive", method: http.MethodPut, path: archivePath, tag: "files", status: http.StatusNoContent,
		summary: "Unpack a tar or tar.gz into a directory", description: "The directory is made when it is missing. Of any size; streamed.",
	}, d.uploadArchive)
	d.Documented(http.MethodPut, archivePath).RequestBody = &huma.RequestBody{Content: httpapi.Content{
		"application/x-tar": archives["application/x-tar"], "application/gzip": archives["application/gzip"],
	}}
	register(d, operation{
		id: "watch-files", method: http.MethodGet, path: filesPath + "/watch", tag: "files", summary: "Follow changes of files as Server-Sent Events",
		description: "Events: change with {path,op,time}, ping. The sandbox must run. An error event ends a stream that could not go on.",
		responses: map[string]*huma.Response{
			"200": {Description: "Events", Content: events()},
		},
	}, d.watchFiles)
}

type archiveRequest struct {
	exchange
	PathInput
	Format string `query:"format" enum:"tar,tar.gz,zip" default:"tar.gz"`
}

func (d *door) downloadArchive(ctx context.Context, in *archiveRequest) (*streamed, error) {
	dir := in.Path
	if dir == "" {
		dir = sandbox.WorkspaceDir
	}
	format := sandbox.ArchiveFormat(in.Format)
	if in.head() {
		_, err := d.Core.Files().Stat(ctx, in.ID, dir, true)
		return &streamed{Body: nothing(httpapi.ArchiveTypes[format])}, err
	}
	body, err := d.Core.Files().Archive(ctx, in.ID, dir, format)
	if err != nil {
		return nil, err
	}
	// What goes wrong before much was read is still a status.
	begin := make([]byte, httpapi.CopyBuffer)
	n, err := 0, error(nil)
	for n < len(begin) && err == nil {
		var m int
		m, err = body.Read(begin[n:])
		n += m
	}
	if err != nil && !errors.Is(err, io.EOF) {
		_ = body.Close() // it has failed already
		return nil, err
	}
	return stream(func() {
		defer body.Close()
		h := in.w.Header()
		h.Set("Content-Type", httpapi.ArchiveTypes[format])
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(absolute(dir)) + "." + in.Format}))
		in.w.WriteHeader(http.StatusOK)
		_, _ = d.Copy(ctx, in.w, io.MultiReader(bytes.NewReader(begin[:n]), body)) // the client went away
	}), nil
}

type extractRequest struct {
	exchange
	PathInput
}

func (d *door) uploadArchive(ctx context.Context, in *extractRequest) (*struct{}, error) {
	if in.Path == "" {
		return nil, errs.E(errs.Invalid, "path: missing")
	}
	return nil, d.Core.Files().Extract(ctx, in.ID, in.Path, front.Upload(front.StreamedBody(in.r)))
}

type watchRequest struct {
	exchange
	PathInput
	Recursive bool `query:"recursive"`
}

// changeEvent is the data of a change event.
type changeEvent struct {
	Path string    `json:"path"`
	Op   string    `json:"op"`
	Time time.Time `json:"time"`
}

func (d *door) watchFiles(ctx context.Context, in *watchRequest) (*streamed, error) {
	dir := in.Path
	if dir == "" {
		dir = sandbox.WorkspaceDir
	}
	// A watch that cannot begin is an error and not a stream.
	if err := d.Core.CheckWatch(ctx, in.ID, dir); err != nil {
		return nil, err
	}
	if in.head() {
		return &streamed{Body: nothing(sse.MediaType)}, nil
	}
	return stream(func() {
		s, err := sse.New(in.w, http.StatusOK)
		if err != nil {
			return
		}
		source := func(ctx context.Context) iter.Seq2[sandbox.FileChange, error] {
			return d.Core.Watch(ctx, in.ID, dir, in.Recursive)
		}
		err = sse.Pump(ctx, d.Life.Done(), source, sse.PingEvery, func(c sandbox.FileChange) error {
			return s.Send(sse.NoID, "change", changeEvent{Path: c.Path, Op: c.Op, Time: c.Time.UTC()})
		}, s.Ping)
		d.failStream(ctx, s, err)
	}), nil
}
