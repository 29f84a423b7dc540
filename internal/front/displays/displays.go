// Package displays is the door to single displays of code: an image, a table or
// whatever else a cell has shown, as it is and by its place, so that pages and clients
// can show it without reading the whole of the cell's output. It gives what is stored
// and makes nothing of it.
//
// What a display holds was written in a sandbox. A browser that opens one gives it no
// origin, so that its scripts reach nothing of the API.
package displays

import (
	"bytes"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/tools"
)

// Register puts the door on a server. Of each display one type is given, as the tools
// of agents choose it; the result of the last expression is the last display when it is
// more than text.
func Register(s *httpapi.Server) {
	s.Mux.HandleFunc(http.MethodGet+" "+tools.DisplaysPattern, func(w http.ResponseWriter, r *http.Request) {
		if err := serve(s, w, r); err != nil {
			s.Error(w, r, err)
		}
	})
}

func serve(s *httpapi.Server, w http.ResponseWriter, r *http.Request) error {
	seq, err := strconv.ParseInt(r.PathValue("seq"), 10, 64)
	if err != nil || seq < 1 {
		return errs.E(errs.Invalid, "seq: not a number of a command")
	}
	n, err := strconv.Atoi(r.PathValue("n"))
	if err != nil || n < 0 {
		return errs.E(errs.Invalid, "n: not a place")
	}
	e, err := s.Core.Code().Execution(r.Context(), r.PathValue("id"), seq)
	if err != nil {
		return err
	}
	list := tools.DisplaysOf(e)
	if n >= len(list) {
		if e.Pruned {
			return errs.E(errs.NotFound, "what the cell has shown was removed to make room for later output")
		}
		return errs.E(errs.NotFound, "the cell has shown %d things", len(list))
	}
	data, err := list[n].Bytes()
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", contentType(list[n].Type))
	h.Set("X-Content-Type-Options", "nosniff")
	// An opaque origin: scripts of a plot run, and see nobody's session.
	h.Set("Content-Security-Policy", "sandbox allow-scripts")
	h.Set("Cache-Control", "no-store")
	if e.Exec.Exit != nil {
		h.Set("Cache-Control", "private, max-age=3600")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	return nil
}

// contentType is the type of a display as a header has it. A kernel decides what it
// says.
func contentType(kind string) string {
	name, params, err := mime.ParseMediaType(kind)
	if err != nil || !strings.Contains(name, "/") || strings.HasPrefix(name, "multipart/") {
		return "application/octet-stream"
	}
	if strings.HasPrefix(name, "text/") || name == "image/svg+xml" {
		params["charset"] = "utf-8"
	}
	return mime.FormatMediaType(name, params)
}
