package sandboxed

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/task"
)

// The dev server of sandboxed is a service.
const (
	devService = "dev"
	devCommand = "pnpm dev"
	devPort    = 3000
)

// devServer is the service of a sandbox whose create declares the port of the
// preview. It begins when the app has a package.json.
func devServer(ports []int) []sandbox.Service {
	if !slices.Contains(ports, devPort) {
		return nil
	}
	return []sandbox.Service{{Name: devService, Command: devCommand, Cwd: appDir, Port: devPort, Requires: appDir + "/package.json"}}
}

// Runtime is what a sandbox does inside, where it has a dev server.
type Runtime struct {
	Preview    Preview     `json:"preview"`
	ActiveTask *ActiveTask `json:"active_task"`
}

// ActiveTask is the task that runs.
type ActiveTask struct {
	ID     string `json:"id"`
	Status string `json:"status" enum:"running"`
	Phase  string `json:"phase"`
}

// Preview is the dev server, as a visitor finds it.
type Preview struct {
	Status            string     `json:"status" enum:"down,starting,ready,error" doc:"down: no process. starting: it does not answer yet. ready: GET / is 200 and the scripts and styles that it names answer. error: one of them does not."`
	PID               int64      `json:"pid,omitempty"`
	LastHTTPStatus    int        `json:"last_http_status,omitempty"`
	LastCheckedAt     *time.Time `json:"last_checked_at,omitempty"`
	BuildErrorMessage string     `json:"build_error_message,omitempty" doc:"The beginning of an answer with a status of 500 or more, or why the server is given up."`
	Restarts          int        `json:"restarts"`
}

// Bounds of a probe: what answers is the sandbox's own.
const (
	probeTime    = 3 * time.Second
	probeBody    = 1 << 20
	probeHeader  = 64 << 10
	probeAssets  = 10
	probeMessage = 500
)

// runtimeOf looks at the dev server of a sandbox; nil when it has none.
func (d *dialect) runtimeOf(ctx context.Context, b sandbox.Sandbox) *Runtime {
	if b.State != sandbox.Running {
		return nil
	}
	st, err := d.Core.Services().Get(ctx, string(b.ID), devService)
	if err != nil || st.Service.Port == 0 {
		return nil
	}
	p := Preview{Status: "down", PID: st.PID, Restarts: st.Restarts}
	if st.State == services.Failed {
		p.BuildErrorMessage = st.Reason
	}
	if st.PID != 0 {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		at := time.Now().UTC()
		p.LastCheckedAt = &at
		dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.Core.Services().Connect(ctx, string(b.ID), st.Service.Port)
		}
		p.Status, p.LastHTTPStatus, p.BuildErrorMessage = probe(ctx, dial, st.Service.Port)
	}
	rt := &Runtime{Preview: p}
	if id, phase, err := d.Core.Tasks().Active(ctx, b); err == nil && id != "" {
		rt.ActiveTask = &ActiveTask{ID: string(id), Status: string(task.Running), Phase: string(phase)}
	}
	return rt
}

// probe asks a web app for its page and what the page names.
func probe(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), port int) (status string, code int, message string) {
	transport := &http.Transport{DialContext: dial, MaxResponseHeaderBytes: probeHeader, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport}
	origin := "http://localhost:" + strconv.Itoa(port)
	code, body, err := fetch(ctx, c, origin+"/")
	switch {
	case err != nil:
		return "starting", 0, ""
	case code >= http.StatusInternalServerError:
		return "error", code, excerpt(body)
	case code != http.StatusOK:
		return "starting", code, ""
	}
	for _, path := range assets(string(body)) {
		assetCode, text, err := fetch(ctx, c, origin+path)
		if err == nil && assetCode >= http.StatusInternalServerError {
			return "error", code, excerpt(text)
		}
	}
	return "ready", code, ""
}

func fetch(ctx context.Context, c *http.Client, address string) (code int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Accept", "text/html,*/*;q=0.8")
	res, err := c.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	body, err = io.ReadAll(io.LimitReader(res.Body, probeBody))
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // a page without end is one
	}
	return res.StatusCode, body, err
}

var assetOf = regexp.MustCompile(`(?is)<(?:script\b[^>]*?\bsrc|link\b[^>]*?\bhref)\s*=\s*["']([^"']+)["']`)

// assets are the paths of the page's own scripts and styles.
func assets(page string) (paths []string) {
	for _, m := range assetOf.FindAllStringSubmatch(page, probeAssets) {
		u, err := url.Parse(m[1])
		if err != nil || u.IsAbs() || u.Host != "" || u.Path == "" {
			continue
		}
		if !strings.HasPrefix(u.Path, "/") {
			u.Path = "/" + u.Path
		}
		paths = append(paths, u.RequestURI())
	}
	return paths
}

// excerpt is the beginning of an answer, as text.
func excerpt(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), probeMessage)]), "\uFFFD")
	return strings.TrimSpace(text)
}
