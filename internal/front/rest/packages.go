package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// PackagesInput asks for packages.
type PackagesInput struct {
	Runtime      string            `json:"runtime,omitempty" enum:"python,node,r" doc:"Default the sandbox's, or python."`
	Dependencies map[string]string `json:"dependencies" doc:"Names with versions; an empty version is any."`
	Wait         *bool             `json:"wait,omitempty" doc:"Default true: answer when the installation has ended."`
	WaitSeconds  *float64          `json:"wait_seconds,omitempty" minimum:"0" maximum:"600" doc:"Default 60: after that 202; the installation goes on."`
	Stream       bool              `json:"stream,omitempty" doc:"Answer with Server-Sent Events, as Accept: text/event-stream does."`
}

type packagesRequest struct {
	exchange
	IDInput
	Body PackagesInput
}

func (d *door) packagesRoutes() {
	register(d, operation{
		id: "install-packages", method: http.MethodPost, path: "/v1/sandboxes/{id}/packages", tag: "packages", summary: "Install packages",
		description: "The answer is the operation, with {installed} or {error} in result: see docs/packages.md. A failure of the installer is result.error, with 200.",
		responses: map[string]*huma.Response{
			"200": {Description: "The installation has ended, or a stream of its output", Content: execContent(d)},
			"202": {Description: "The installation goes on", Content: httpapi.Media("application/json", d.Schema(Exec{}, "Exec"))},
		},
	}, d.installPackages)
}

func (d *door) installPackages(ctx context.Context, in *packagesRequest) (*streamed, error) {
	wait, err := waitTime(in.Body.WaitSeconds)
	if err != nil {
		return nil, err
	}
	follow := in.Body.Stream || wantsEvents(in.r.Header.Get("Accept"))
	if follow || in.Body.Wait != nil && !*in.Body.Wait {
		wait = 0
	}
	waiting, done := d.UntilDrain(ctx)
	res, err := d.Core.Packages().Install(waiting, in.ID, program.PackagesRequest{Runtime: in.Body.Runtime, Dependencies: in.Body.Dependencies}, wait)
	done()
	// As with exec: what goes on has a number.
	if err != nil && (res.Exec.Seq == 0 || ctx.Err() != nil || !d.Drains()) {
		return nil, err
	}
	if follow {
		in.locate(in.ID, "execs", res.Exec.Seq)
		return stream(func() { d.followExec(ctx, in.w, in.ID, res.Exec.Seq, 0, d.ended) }), nil
	}
	status := http.StatusOK
	if !res.Exec.Status.Finished() {
		status = http.StatusAccepted
		in.locate(in.ID, "execs", res.Exec.Seq)
	}
	return stream(func() { d.writeResult(ctx, in.w, status, res) }), nil
}
