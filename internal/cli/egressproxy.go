package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/collector"
	"github.com/cubbyhq/cubby/internal/egress"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

func (a *app) egressProxyCommand() *cobra.Command {
	var p egressProxy
	cmd := &cobra.Command{
		Use:   "egress-proxy [flags]",
		Short: "run the proxy that makes sandboxes' connections",
		Long: `Runs the egress proxy by itself, for daemons that are told of it with
CUBBY_EGRESS_PROXY. Every request needs a token that is signed with the same key
and says what its sandbox may reach; without one nothing is reached (407). What is
denied gets 403, as does every address of a local network that --allow does not
name.

The key is read from CUBBY_EGRESS_SIGNING_KEY; --signing-key shows it to everybody
who can list processes. Several keys are id:key,id2:key2.`,
		Example: `  export CUBBY_EGRESS_SIGNING_KEY=…
  cubby egress-proxy --listen 10.0.0.2:15004 --tls-cert c.pem --tls-key k.pem
  cubby serve --egress-proxy https://proxy.internal:15004`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), a) },
	}
	f := cmd.Flags()
	f.StringVar(&p.listen, "listen", "127.0.0.1:15004", "`address` to take connections on")
	f.StringVar(&p.metrics, "metrics-listen", "", "`address` that serves /metrics to everybody who reaches it (default: none)")
	f.StringVar(&p.key, "signing-key", "", "the `key`; better in CUBBY_EGRESS_SIGNING_KEY")
	f.StringVar(&p.allow, "allow", "", "`hosts` that every sandbox with network may reach; may name private addresses (CUBBY_EGRESS_ALLOW)")
	f.StringVar(&p.deny, "deny", "", "`hosts` that no sandbox may reach (CUBBY_EGRESS_DENY)")
	f.StringVar(&p.cert, "tls-cert", "", "certificate `file` (PEM); with tls-key the proxy is served over TLS")
	f.StringVar(&p.certKey, "tls-key", "", "private key `file` (PEM) of tls-cert")
	return cmd
}

type egressProxy struct{ listen, metrics, key, allow, deny, cert, certKey string }

func (p egressProxy) run(ctx context.Context, a *app) error {
	collector.Server()
	for name, value := range map[string]*string{
		"CUBBY_EGRESS_SIGNING_KEY": &p.key, "CUBBY_EGRESS_ALLOW": &p.allow, "CUBBY_EGRESS_DENY": &p.deny,
	} {
		if *value == "" {
			*value = a.getenv(name)
		}
	}
	if p.key == "" {
		return errs.E(errs.Invalid, "a signing key is needed").Hint("set CUBBY_EGRESS_SIGNING_KEY, here and for the daemon")
	}
	keys, err := egress.ParseKeys(p.key)
	if err != nil {
		return err
	}
	operator, err := egress.ParseOperator(p.allow, p.deny)
	if err != nil {
		return err
	}
	l, err := p.open(ctx)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(a.Stderr, slog.LevelInfo, "text")
	metrics := telemetry.NewEgressMetrics(telemetry.Version)
	ledger := egress.NewLedger(log, metrics)
	proxy := egress.NewAlone(egress.Config{Operator: operator, Log: log, OnDecision: ledger.Decided, OnEnd: ledger.Ended}, keys)
	metrics.EgressTraffic(proxy.Traffic)
	var scraped net.Listener
	if p.metrics != "" {
		if scraped, err = listen(ctx, p.metrics); err != nil {
			l.Close()
			return err
		}
	}
	log.Info("serving", "listen", l.Addr().String(), "tls", p.cert != "")
	var beside sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	if scraped != nil {
		log.Info("serving metrics", "listen", scraped.Addr().String())
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", metrics.Handler())
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
		beside.Go(func() { _ = server.Serve(scraped) }) // until it is closed
		context.AfterFunc(ctx, func() { _ = server.Close() })
	}
	beside.Go(func() { ledger.Run(ctx) })
	err = proxy.Serve(ctx, l)
	cancel()
	beside.Wait()
	ledger.Flush()
	return err
}

func (p egressProxy) open(ctx context.Context) (net.Listener, error) {
	if (p.cert == "") != (p.certKey == "") {
		return nil, errs.E(errs.Invalid, "tls-cert and tls-key go together")
	}
	var config *tls.Config
	if p.cert != "" {
		pair, err := tls.LoadX509KeyPair(p.cert, p.certKey)
		if err != nil {
			return nil, errs.E(errs.Invalid, "tls-cert and tls-key: %v", err)
		}
		config = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	l, err := listen(ctx, p.listen)
	if err != nil {
		return nil, err
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return l, nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, errs.E(errs.Unavailable, "cannot listen on %s: %s", address, lastCause(err))
	}
	return l, nil
}

// lastCause is what the system said.
func lastCause(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return strings.TrimSpace(fmt.Sprint(err))
}
