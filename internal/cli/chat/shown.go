package chat

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// shown brings what tools display here: as files, whose names are printed.
type shown struct {
	c    *client.Client
	dir  string // "": a new one when it is needed
	made int
}

// The bounds of what is fetched for one call of a tool.
const (
	maxShown  = 32 << 20
	fetchTime = 30 * time.Second
	mostShown = 20
)

// extensions of files by their MIME types; others stay where they are.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "image/svg+xml": ".svg", "text/html": ".html",
	"application/pdf": ".pdf", "audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "video/mp4": ".mp4", "video/webm": ".webm",
}

// of returns a line for each thing that a tool's message has beside its text.
func (s *shown) of(artifact json.RawMessage) (lines []string) {
	var a struct {
		Displays []struct {
			Type string `json:"type"`
			URL  string `json:"url"`
		} `json:"display_outputs"`
		Files []struct {
			Path        string `json:"path"`
			Size        int64  `json:"size"`
			DownloadURL string `json:"download_url"`
		} `json:"files"`
	}
	if json.Unmarshal(artifact, &a) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	for i, d := range a.Displays {
		ext, ok := extensions[d.Type]
		if !ok || i >= mostShown {
			continue
		}
		path, err := s.fetch(ctx, d.URL, ext)
		if err != nil {
			path = fmt.Sprintf("%s could not be brought here: %v", format.Printable(d.Type), err)
		}
		lines = append(lines, path)
	}
	for i, f := range a.Files {
		if i < mostShown {
			lines = append(lines, strings.TrimSpace(format.Printable(fmt.Sprintf("%s (%s)  %s", f.Path, format.Size(f.Size), f.DownloadURL))))
		}
	}
	return lines
}

// fetch writes what is at a URL of the daemon to a file. The daemon is the one that the
// client knows, whichever host the URL names: nobody else gets the token.
func (s *shown) fetch(ctx context.Context, at, ext string) (string, error) {
	u, err := url.Parse(at)
	if err != nil || !strings.HasPrefix(u.Path, "/") {
		return "", fmt.Errorf("%q is no place at the daemon", format.Printable(at))
	}
	res, err := s.c.Send(ctx, client.Request{Method: http.MethodGet, Path: u.EscapedPath(), Query: u.Query()})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxShown+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > maxShown:
		return "", fmt.Errorf("it has more than %s: %s", format.Size(maxShown), format.Printable(at))
	case s.dir == "":
		s.dir, err = os.MkdirTemp("", "cubby-chat-")
	case s.made == 0:
		err = os.MkdirAll(s.dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	for {
		s.made++
		path := filepath.Join(s.dir, fmt.Sprintf("%d%s", s.made, ext))
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if os.IsExist(err) { // of an earlier chat
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return path, err
	}
}
