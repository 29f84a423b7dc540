package client

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/cubbyhq/cubby/client/internal/sse"
)

// PackagesOptions is what to install.
type PackagesOptions struct {
	Runtime string `json:"runtime,omitempty"` // "python", "node" or "r"; default the sandbox's, or python
	// Dependencies are names with versions; "" is any: what is there, else the
	// newest.
	Dependencies map[string]string `json:"dependencies"`
	// Progress, when not nil, hears what the installer prints.
	Progress func(Output) `json:"-"`
}

// Package is an installed package.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// PackagesError is why packages were not installed.
type PackagesError struct {
	Code    string `json:"code"` // not_found, egress_denied, unreachable, …: see docs/packages.md
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Log     string `json:"log"` // the end of what the installer printed

	Exec Exec `json:"-"` // the whole operation
}

func (e *PackagesError) Error() string { return e.Message }

// InstallPackages installs packages and returns those that were asked for with
// the versions that are there now. When ctx ends first, the installation goes
// on. What the installer could not do is a [*PackagesError].
func (c *Client) InstallPackages(ctx context.Context, id string, o PackagesOptions) ([]Package, error) {
	body := struct {
		PackagesOptions
		Wait bool `json:"wait"`
	}{o, o.Progress == nil}
	var e Exec
	if err := c.do(ctx, call{method: http.MethodPost, path: sandboxPath(id, "packages"), json: body}, &e); err != nil {
		return nil, err
	}
	p := c.Process(id, e.Seq)
	if o.Progress != nil {
		for out, err := range p.Stream(ctx, 0) {
			if err != nil {
				return nil, err
			}
			if out.Exit == nil {
				o.Progress(out)
			} else {
				e = *out.Exit
			}
		}
	}
	if !e.Finished() {
		var err error
		if e, err = p.Wait(ctx); err != nil {
			return nil, err
		}
	}
	var result struct {
		Installed []Package
		Error     *PackagesError
	}
	switch {
	case e.Result == nil:
		return nil, &ExitError{Exec: e}
	case json.Unmarshal(e.Result, &result) != nil:
		return nil, &Error{Code: Internal, Message: "the result of an installation has another form than expected"}
	case result.Error != nil:
		result.Error.Exec = e
		return nil, result.Error
	}
	return result.Installed, nil
}

// follow sends a create as a stream and tells progress until the sandbox is
// made.
func (c *Client) follow(ctx context.Context, r call, progress func(Output)) (Sandbox, error) {
	r.header.Set("Accept", "text/event-stream")
	res, err := c.send(ctx, r)
	if err != nil {
		return Sandbox{}, err
	}
	defer res.Body.Close()
	events := sse.NewReader(res.Body)
	for after := int64(0); ; {
		ev, err := events.Next()
		if err != nil {
			return Sandbox{}, c.readError(ctx, err)
		}
		if ev.Name == "sandbox" {
			var box Sandbox
			if err := json.Unmarshal(ev.Data, &box); err != nil {
				return box, badEvent(err)
			}
			return box, nil
		}
		out, ok, err := outputOf(ev, after)
		if err != nil {
			return Sandbox{}, err
		}
		if ok {
			after = out.Next
			progress(out)
		}
	}
}
