package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/cubbyhq/cubby/client/internal/sse"
	"github.com/cubbyhq/cubby/client/internal/texts"
)

// Image is a root filesystem that sandboxes start from.
type Image struct {
	Name      string    `json:"name"`
	Digest    string    `json:"digest"`
	Size      int64     `json:"size"` // bytes on disk
	CreatedAt time.Time `json:"created_at"`
	Source    string    `json:"source,omitempty"`
	// Definition says what it was made of, where it was built from another image.
	Definition *ImageDefinition `json:"definition,omitempty"`
	Outdated   bool             `json:"outdated,omitempty"` // it was built, and its recipe has changed since
	Damaged    bool             `json:"damaged,omitempty"`
	Problem    string           `json:"problem,omitempty"` // what is wrong with a damaged one
}

// ImageDefinition says what an image was made of.
type ImageDefinition struct {
	// Recipe is the built-in recipe that it comes from, or Image the digest of
	// one that has none.
	Recipe string       `json:"recipe,omitempty"`
	Image  string       `json:"image,omitempty"`
	Apt    []string     `json:"apt,omitempty"`
	Steps  []ImageSteps `json:"steps,omitempty"`
}

// ImageSteps are what a build does in a sandbox: first npm's packages, then
// pip's, then the commands, as root.
type ImageSteps struct {
	NPM   []string `json:"npm,omitempty"`
	PIP   []string `json:"pip,omitempty"`
	Run   []string `json:"run,omitempty"`
	Allow []string `json:"allow,omitempty"` // hosts that the commands may reach; none by default
}

// ImageOptions are what an image is made of: with Name alone it is that of a
// built-in recipe, with From another image with more in it, and with Pull one
// that is fetched from a registry.
type ImageOptions struct {
	Name string   `json:"name,omitempty"`
	From string   `json:"from,omitempty"`
	Pull string   `json:"pull,omitempty"`
	Apt  []string `json:"apt,omitempty"` // Debian packages
	ImageSteps
	// Progress hears what is done, one call at a time; nil is nobody.
	Progress func(ImageProgress) `json:"-"`
}

// ImageProgress is one report about an image that is being made: how far it is,
// or what one of its steps prints.
type ImageProgress struct {
	Stage string `json:"stage"`
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: unknown
	Items bool   `json:"items"` // Done and Total count things, not bytes
	// Printed is output of a step; Stage is "" then.
	Printed []byte `json:"-"`
}

// Images lists the daemon's images.
func (c *Client) Images(ctx context.Context) ([]Image, error) {
	var answer struct {
		Images []Image `json:"images"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/images"}, &answer)
	return answer.Images, err
}

// errImageCut: the stream ended before the image was there.
var errImageCut = &Error{
	Code: Unavailable, Message: "the connection ended before the image was made", Retryable: true,
	Hint: "the daemon goes on; list the images in a moment",
}

// CreateImage builds or pulls an image and returns when it is there. When ctx
// ends the daemon goes on with it, and another CreateImage of the name is a
// [Conflict] until it has ended. A token of a tenant gets [Forbidden].
func (c *Client) CreateImage(ctx context.Context, o ImageOptions) (Image, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	res, err := c.send(ctx, call{
		method: http.MethodPost, path: "/v1/images", json: o,
		header: http.Header{"Accept": {"text/event-stream"}},
	})
	if err != nil {
		return Image{}, err
	}
	defer res.Body.Close()
	alive := time.AfterFunc(streamSilence, func() { cancel(errImageCut) })
	defer alive.Stop()
	events := sse.NewReader(res.Body)
	for {
		ev, err := events.Next()
		if err != nil {
			if cause := context.Cause(ctx); errors.Is(cause, errImageCut) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return Image{}, errImageCut
			}
			return Image{}, c.readError(ctx, err)
		}
		alive.Reset(streamSilence)
		var made Image
		switch ev.Name {
		case "ping":
			continue
		case "image":
			if err := json.Unmarshal(ev.Data, &made); err != nil {
				return Image{}, badEvent(err)
			}
			return made, nil
		case "error":
			if e, ok := decodeEnvelope(ev.Data); ok {
				return Image{}, e
			}
			return Image{}, badEvent(nil)
		}
		p, err := imageProgress(ev)
		if err != nil {
			return Image{}, err
		}
		if o.Progress != nil {
			o.Progress(p)
		}
	}
}

func imageProgress(ev sse.Event) (ImageProgress, error) {
	var p ImageProgress
	if ev.Name == "progress" {
		if err := json.Unmarshal(ev.Data, &p); err != nil {
			return p, badEvent(err)
		}
		return p, nil
	}
	var piece struct {
		Data     string `json:"data"`
		Encoding string `json:"encoding"`
	}
	err := json.Unmarshal(ev.Data, &piece)
	if err == nil {
		var text string
		text, err = texts.Decode(piece.Data, piece.Encoding)
		p.Printed = []byte(text)
	}
	if err != nil {
		return p, badEvent(err)
	}
	return p, nil
}

// RemoveImage removes an image that no sandbox uses, by its name or digest: it
// is [WrongState] while one does. A token of a tenant gets [Forbidden].
func (c *Client) RemoveImage(ctx context.Context, name string) error {
	return c.do(ctx, call{method: http.MethodDelete, path: "/v1/images/" + url.PathEscape(name)}, nil)
}
