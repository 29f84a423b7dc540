package daemon

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/core/admission"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/agentapi"
	"github.com/cubbyhq/cubby/internal/front/compat/ecs"
	"github.com/cubbyhq/cubby/internal/front/compat/sandboxagent"
	"github.com/cubbyhq/cubby/internal/front/compat/sandboxed"
	"github.com/cubbyhq/cubby/internal/front/displays"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/mcp"
	"github.com/cubbyhq/cubby/internal/front/preview"
	"github.com/cubbyhq/cubby/internal/front/rest"
	"github.com/cubbyhq/cubby/internal/front/rpc"
	"github.com/cubbyhq/cubby/internal/front/settings"
	"github.com/cubbyhq/cubby/internal/front/terminal"
	"github.com/cubbyhq/cubby/internal/front/tunnel"
	"github.com/cubbyhq/cubby/internal/front/web"
	"github.com/cubbyhq/cubby/internal/front/webhooks"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// apis register what one server of HTTP answers: the canonical API, and the
// dialects of other systems. Of two that share a path, the later one is asked
// first.
func apis(a agentParts, agentAtRoot bool) []func(*httpapi.Server) {
	return []func(*httpapi.Server){
		rest.Register, displays.Register, settings.Register(a.settings), webhooks.Register(a.webhooks), sandboxed.Register, ecs.Register,
		sandboxagent.Register(a.settings, a.service.Threads().Ended),
		agentapi.Register(agentapi.Config{
			Assistants: a.service.Assistants(), Threads: a.service.Threads(), Runs: a.service.Runs(), Crons: a.service.Crons(), Items: a.items, AtRoot: agentAtRoot,
		}),
	}
}

// interfaces are the ways through which sandboxes are made, with their limits.
func interfaces(c config.Config) map[admission.Interface]admission.InterfaceLimits {
	return map[admission.Interface]admission.InterfaceLimits{
		rpc.Interface:       {Documented: rpc.Limits(), Operator: sandbox.Limits(c.AgentboxLimits)},
		sandboxed.Interface: {Documented: sandboxed.Limits(), Operator: sandbox.Limits(c.SandboxedLimits)},
		ecs.Interface:       {Operator: sandbox.Limits(c.ECSLimits)},
		mcp.Interface:       {Operator: sandbox.Limits(c.MCPLimits)},
		mcp.SixInterface:    {Documented: mcp.SixLimits(), Operator: sandbox.Limits(c.SandboxAgentLimits)},
	}
}

// agentInterface is the way through which the agent makes sandboxes: sandbox-agent's
// where the operator says what those get. Otherwise they are as cubby's own, which
// are kept ready.
func agentInterface(c config.Config) admission.Interface {
	if c.SandboxAgentLimits == (config.Limits{}) {
		return ""
	}
	return mcp.SixInterface
}

// downloadURL is where clients get what a sandbox exported.
func (d *Daemon) downloadURL(b sandbox.Sandbox, name string) string {
	base := strings.TrimRight(d.baseURL(), "/")
	if b.Spec.Thread != "" {
		return sandboxagent.DownloadURL(base, b, name)
	}
	return rest.DownloadURL(base, b, name)
}

// doors puts the doors beside each other. The API has what no other one takes.
func (d *Daemon) doors(api *httpapi.Server, spool front.Spool, life context.Context) http.Handler {
	d.terminals = terminal.New(terminal.Config{Core: d.core, Log: d.log, Memory: d.memory, Life: life})
	mux := http.NewServeMux()
	mux.Handle(terminal.Pattern, d.terminals)
	d.tunnels = tunnel.New(d.core, life)
	mux.Handle(tunnel.Pattern, d.tunnels)
	d.agents = mcp.New(mcp.Config{Core: d.core, Log: d.log, Version: telemetry.Version, Spool: spool, Life: life})
	d.agents.Register(mux)
	web.Register(mux)
	mux.HandleFunc("GET "+preview.SignInPath, d.signIn)
	mux.HandleFunc("GET "+preview.ForwardPath, d.signIn)
	rpc.Register(mux, rpc.Config{Core: d.core, Log: d.log, Life: life})
	mux.Handle("/", api)
	return mux
}

// refusals answer in the dialect of the door that a request was for.
func refusals(api *httpapi.Server) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		if rpc.Spoken(r) {
			rpc.WriteError(w, r, err)
			return
		}
		api.Error(w, r, err)
	}
}

// protocols are what the daemon speaks: gRPC needs HTTP/2, and most of its
// clients speak it without TLS on a network of their own.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// http2 bounds what a connection of HTTP/2 makes the daemon hold, also before
// its client has shown a token. What is bounded anyway: streams that are reset
// at once still count until their handlers end, and so do frames of control
// and of headers that wait.
func http2() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: 250,
		// A connection keeps a buffer for its largest frame.
		MaxReadFrameSize: 16 << 10,
		// What was received and no handler has read yet.
		MaxReceiveBufferPerConnection: 256 << 10,
		MaxReceiveBufferPerStream:     128 << 10,
		// Peers that are gone, or take no bytes.
		SendPingTimeout:  time.Minute,
		PingTimeout:      30 * time.Second,
		WriteByteTimeout: time.Minute,
	}
}

// access says what a request needs.
func access(r *http.Request) front.Access {
	if web.Path(r.URL.Path) || rpc.Open(r) || preview.IsSignIn(r.URL.Path) {
		return front.Anyone
	}
	return rest.Access(r)
}
