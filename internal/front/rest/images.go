package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/imagebuild"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/image"
)

// Image is a root filesystem that sandboxes can start from.
type Image struct {
	Name       string           `json:"name"`
	Digest     string           `json:"digest"`
	Size       int64            `json:"size" doc:"Bytes on the host's disk."`
	CreatedAt  time.Time        `json:"created_at"`
	Source     string           `json:"source,omitempty"`
	Definition *ImageDefinition `json:"definition,omitempty" doc:"What it was made of, where it was built from another image."`
	Outdated   bool             `json:"outdated,omitempty" doc:"It was built, and its recipe has changed since: build it again."`
	Damaged    bool             `json:"damaged,omitempty" doc:"No sandbox starts from it."`
	Problem    string           `json:"problem,omitempty" doc:"What is damaged."`
}

// ImageDefinition says what an image was made of.
type ImageDefinition struct {
	Recipe string       `json:"recipe,omitempty" doc:"The built-in recipe that it comes from."`
	Image  string       `json:"image,omitempty" doc:"The digest of the image that it comes from, where that has no recipe."`
	Apt    []string     `json:"apt,omitempty"`
	Steps  []ImageSteps `json:"steps,omitempty" doc:"What was done in a sandbox, in this order."`
}

// ImageSteps are what a build does in a sandbox.
type ImageSteps struct {
	NPM   []string `json:"npm,omitempty" maxItems:"200" doc:"Packages of npm, for everybody."`
	PIP   []string `json:"pip,omitempty" maxItems:"200" doc:"Packages of pip, for everybody."`
	Run   []string `json:"run,omitempty" maxItems:"100" doc:"Commands for sh, as root."`
	Allow []string `json:"allow,omitempty" doc:"Hosts that the commands may reach; none by default."`
}

// ImageList is all images.
type ImageList struct {
	Images []Image `json:"images" nullable:"false"`
}

// ImageInput asks for an image.
type ImageInput struct {
	Name string   `json:"name,omitempty" maxLength:"200" doc:"Of a built-in recipe, or with from or pull of the image that is made."`
	From string   `json:"from,omitempty" maxLength:"200" doc:"The image that the packages and commands are added to."`
	Pull string   `json:"pull,omitempty" maxLength:"1000" doc:"Fetches this image from an OCI registry." example:"docker.io/library/alpine"`
	Apt  []string `json:"apt,omitempty" maxItems:"200" doc:"Debian packages."`
	ImageSteps
	Stream bool `json:"stream,omitempty" doc:"Answers with a stream of events, as Accept: text/event-stream does."`
}

func (d *door) imageRoutes() {
	register(d, operation{
		id: "list-images", method: http.MethodGet, path: "/v1/images", tag: "host", summary: "List images",
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body ImageList }, error) {
		images, err := d.Core.Images(ctx)
		if err != nil {
			return nil, err
		}
		out := ImageList{Images: make([]Image, len(images))}
		for i, m := range images {
			out.Images[i] = imageJSON(m)
		}
		return &struct{ Body ImageList }{out}, nil
	})
	register(d, operation{
		id: "create-image", method: http.MethodPost, path: "/v1/images", tag: "host", status: http.StatusCreated,
		summary: "Build or pull an image and wait until it is there",
		description: "With a name alone it builds a built-in recipe; with from, an image with more packages in it; with pull, it fetches one. " +
			"Packages and commands are carried out in a sandbox. A build goes on when its client leaves, a pull ends; a second one of the same name is a conflict until it has ended. " +
			"The events of a stream are progress, stdout and stderr of the steps, ping, and as the last one image or error. Not for tokens of a tenant.",
		responses: map[string]*huma.Response{
			"201": {Description: "Created; a stream begins before it is", Content: orEvents(httpapi.Media("application/json", d.Schema(Image{}, "Image")))},
		},
	}, d.createImage)
	register(d, operation{
		id: "remove-image", method: http.MethodDelete, path: "/v1/images/{name}", tag: "host", status: http.StatusNoContent,
		summary:     "Remove an image that no sandbox uses",
		description: "Not for tokens of a tenant.",
	}, func(ctx context.Context, in *struct {
		Name string `path:"name" maxLength:"200" doc:"Its name or digest."`
	}) (*struct{}, error) {
		return nil, d.Core.Builds().Remove(ctx, in.Name)
	})
}

func imageJSON(m image.Image) Image {
	out := Image{Name: m.Name, Digest: m.Digest, Size: m.Size, CreatedAt: m.CreatedAt.UTC(), Source: m.Source, Outdated: m.Outdated, Damaged: m.Damaged, Problem: m.Problem}
	if def := m.Definition; def != nil {
		out.Definition = &ImageDefinition{Recipe: def.Recipe, Image: def.Image, Apt: def.Apt}
		for _, s := range def.Steps {
			out.Definition.Steps = append(out.Definition.Steps, ImageSteps(s))
		}
	}
	return out
}

type imageInput struct {
	exchange
	Body ImageInput
}

func (d *door) createImage(ctx context.Context, in *imageInput) (*streamed, error) {
	if in.Body.Stream || wantsEvents(in.r.Header.Get("Accept")) {
		return stream(func() { d.followImage(ctx, in.exchange, &in.Body) }), nil
	}
	working, done := d.UntilDrain(ctx)
	defer done()
	img, err := d.makeImage(working, &in.Body, nil)
	if err != nil {
		return nil, err
	}
	return stream(func() { front.WriteJSON(in.w, http.StatusCreated, imageJSON(img)) }), nil
}

// makeImage builds or pulls.
func (d *door) makeImage(ctx context.Context, in *ImageInput, tell func(imagebuild.Output)) (image.Image, error) {
	builds := d.Core.Builds()
	if in.Pull == "" {
		return builds.Build(ctx, image.BuildRequest{Name: in.Name, From: in.From, Apt: in.Apt, Steps: image.Steps(in.ImageSteps)}, tell)
	}
	if in.From != "" || len(in.Apt)+len(in.NPM)+len(in.PIP)+len(in.Run)+len(in.Allow) > 0 {
		return image.Image{}, errs.E(errs.Invalid, "pull: an image that is fetched gets no packages").Hint("pull it first, then build another one from it")
	}
	return builds.Pull(ctx, in.Pull, in.Name, tell)
}

// making is what a stream tells: how far it is, and at last the image.
type making struct {
	imagebuild.Output
	made *image.Image
}

// followImage makes an image and writes the whole response. What fails before
// there is anything to tell is answered as without a stream.
func (d *door) followImage(ctx context.Context, x exchange, in *ImageInput) {
	s, err := sse.Tell(ctx, d.Life.Done(), x.w, http.StatusCreated, func(ctx context.Context, tell func(making)) (making, error) {
		img, err := d.makeImage(ctx, in, func(o imagebuild.Output) { tell(making{Output: o}) })
		return making{made: &img}, err
	}, func(s *sse.Stream, output *sse.Outputs, now making) error {
		if now.Printed != nil {
			return output.Add(*now.Printed)
		}
		if err := output.Flush(); err != nil {
			return err
		}
		if now.made != nil {
			return s.Send(sse.NoID, "image", imageJSON(*now.made))
		}
		return s.Send(sse.NoID, "progress", now.Progress)
	})
	d.toldEnd(ctx, x, s, err, "the image was not made")
}
