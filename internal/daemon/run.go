package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// cutGrace is how long handlers have to return after their requests were cut.
const cutGrace = 2 * time.Second

// Run serves until ctx ends, or until a part fails, and returns when
// everything has stopped and is closed. Nil is a clean stop. The order of
// stopping is: doors, agent, core, disks, store. Sandboxes and their execs go on,
// unless on-shutdown says otherwise.
//
// A part fails only for what cannot get better while the daemon runs, as a database
// that another one has taken. What may pass, each part retries with exponential backoff
// for as long as it takes.
func (d *Daemon) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()

	// The group's context ends when a stop is wanted. A part runs until the
	// part that uses it has stopped.
	g, stopping := errgroup.WithContext(ctx)
	doors, doorsStopped := context.WithCancel(context.WithoutCancel(ctx))
	agents, agentStopped := context.WithCancel(context.WithoutCancel(ctx))
	loops, loopsStopped := context.WithCancel(context.WithoutCancel(ctx))
	disks, disksStopped := context.WithCancel(context.WithoutCancel(ctx))
	part := func(name string, until context.Context, stopped context.CancelFunc, run func(context.Context) error) {
		g.Go(func() error {
			defer stopped()
			err := run(until)
			if err == nil && until.Err() == nil {
				err = errors.New("ended by itself")
			}
			if err != nil && until.Err() == nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				d.log.Error("a part did not stop cleanly", "part", name, telemetry.KeyErr, err)
			}
			return nil
		})
	}
	part("doors", stopping, doorsStopped, d.serve)
	part("agent", doors, agentStopped, d.agent.service.Run)
	part("webhooks", agents, func() {}, d.agent.webhooks.Run)
	part("core", agents, loopsStopped, func(until context.Context) error { return d.runCore(until, ctx) })
	part("disks", loops, disksStopped, d.disks.Run)
	part("journals", disks, func() {}, d.journals.Run)
	part("journals of the agent", disks, func() {}, d.agent.journals.Run)
	part("store", disks, func() {}, d.store.Run)

	err = g.Wait()
	d.log.Info("stopped")
	return err
}

// runCore runs core until its context ends, and then ends the sandboxes where
// on-shutdown says so. A daemon that stops because a part failed, wanted being
// alive still, leaves them to the next one.
func (d *Daemon) runCore(ctx, wanted context.Context) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(ended)
		defer stop()
		if d.cfg.OnShutdown == config.Destroy && wanted.Err() != nil {
			d.destroyAll(running)
		}
	})
	err := d.core.Run(running)
	if !unhook() {
		<-ended
	}
	return err
}

// destroyAll ends every sandbox in the time that a shutdown may take, and says
// what stayed.
func (d *Daemon) destroyAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.ShutdownTimeout)
	defer cancel()
	destroyed, stayed, err := d.core.Sandboxes().DestroyAll(ctx)
	switch {
	case err != nil:
		d.log.Error("the sandboxes could not be destroyed; the next daemon takes them over", "destroyed", destroyed, "stayed", stayed, telemetry.KeyErr, err)
	default:
		d.log.Info("destroyed the sandboxes", "destroyed", destroyed)
	}
}

// serve answers requests until ctx ends and then drains: no new connections,
// streams end at once (their clients come back with an offset), other requests
// may finish for a while, and what is left is cut.
func (d *Daemon) serve(ctx context.Context) error {
	d.log.Info("serving", "listen", d.listener.Addr().String(), "tls", d.cfg.TLS(), "authentication", d.cfg.Authenticated(),
		"data_dir", d.cfg.DataDir, "version", telemetry.Version)
	if d.cfg.Tokens != "" && d.cfg.AuthDisabled {
		d.log.Warn("tokens are set and authentication is disabled: every program of this machine can use the API")
	}
	// The server changes its own as it starts to serve.
	tlsConfig := d.server.TLSConfig.Clone()
	served := make(chan error, 3)
	serve := func(s *http.Server, l net.Listener, tlsConfig *tls.Config) {
		if tlsConfig != nil {
			l = tls.NewListener(l, tlsConfig)
		}
		go func() { served <- s.Serve(l) }()
	}
	serve(d.server, d.listener, tlsConfig)
	if d.second != nil {
		serve(d.server, d.second, tlsConfig)
	}
	servers := []*http.Server{d.server}
	if p := d.previews; p != nil {
		d.log.Info("serving previews", "listen", p.listener.Addr().String(), "url", p.names.URL("ID", 3000))
		serve(p.server, p.listener, p.server.TLSConfig.Clone())
		servers = append(servers, p.server)
	}
	d.notify.send(d.log, "READY=1")
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
	}
	d.notify.send(d.log, "STOPPING=1")
	d.agent.service.Drain()
	d.drain()
	d.fresh.close()
	d.shutdown(context.WithoutCancel(ctx), servers)
	// Connections that changed their protocol are not the server's any more.
	gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
	defer cancel()
	d.terminals.Wait(gone)
	d.tunnels.Wait(gone)
	d.agents.Close(gone)
	if d.previews != nil {
		d.previews.door.Wait(gone)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// shutdown lets the requests of servers end, and cuts those that take too long.
func (d *Daemon) shutdown(ctx context.Context, servers []*http.Server) {
	all := func(limit time.Duration, end func(context.Context, *http.Server) error) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var g errgroup.Group
		for _, s := range servers {
			g.Go(func() error { return end(ctx, s) })
		}
		return g.Wait()
	}
	stop := func(ctx context.Context, s *http.Server) error { return s.Shutdown(ctx) }
	if all(d.cfg.ShutdownTimeout, stop) == nil {
		return
	}
	d.log.Warn("requests were cut because they took longer than the shutdown may", "timeout", d.cfg.ShutdownTimeout)
	d.cut()
	_ = all(cutGrace, stop) // the next lines end what is left
	for _, s := range servers {
		_ = s.Close()
	}
}
