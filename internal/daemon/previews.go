package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/preview"
)

// previews is where the ports of sandboxes are seen.
type previews struct {
	names    preview.Names
	listener net.Listener
	server   *http.Server
	door     *preview.Door
	signIn   *preview.SignIn
}

// bindPreviews takes the address of previews, where there are to be some. One
// that nobody asked for is done without when another program has it.
func (d *Daemon) bindPreviews(ctx, base, life context.Context, authenticator *auth.Authenticator, guesses *front.Guesses) error {
	domain, err := preview.ParseDomain(d.cfg.PreviewDomain)
	if err != nil {
		return err
	}
	in, err := d.signInConfig()
	if err != nil {
		return err
	}
	tlsConfig, err := serverTLS("preview-tls-cert and preview-tls-key", d.cfg.PreviewTLSCert, d.cfg.PreviewTLSKey)
	if err != nil {
		return err
	}
	address, asked := d.cfg.Previews()
	if address == "" {
		return nil
	}
	l, err := d.listen(ctx, "preview-listen", address)
	if err != nil && !asked && errors.Is(err, syscall.EADDRINUSE) {
		d.log.Warn("there are no previews: another program has their port; choose one with --preview-listen", "address", address)
		return nil
	}
	if err != nil {
		return err
	}
	p := &previews{names: preview.Names{Scheme: "http", Domain: domain}, listener: l}
	if tlsConfig != nil {
		p.names.Scheme = "https"
	}
	if _, p.names.Port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		return err
	}
	if d.cfg.PreviewURL != "" {
		seen, err := url.Parse(d.cfg.PreviewURL)
		if err != nil {
			return err
		}
		p.names.Scheme, p.names.Port = seen.Scheme, seen.Port()
	}
	if p.names.Port == map[string]string{"http": "80", "https": "443"}[p.names.Scheme] {
		p.names.Port = ""
	}
	p.door = preview.New(preview.Config{
		Core: d.core, Names: p.names, Behind: d.cfg.PreviewURL != "", Auth: authenticator, Guesses: guesses, Log: d.log, Life: life,
	})
	in.Error = d.refuse
	p.signIn = p.door.SignIn(in)
	p.server = d.newServer(base, tlsConfig, front.Handler(front.Config{
		PassOn: true, Log: d.log, Metrics: d.metrics, Memory: d.memory, Error: p.door.Refuse,
	}, p.door))
	p.server.MaxHeaderBytes = 64 << 10 // apps have cookies of their own
	p.server.DisableGeneralOptionsHandler = true
	p.server.ConnContext = preview.ConnContext
	d.previews = p
	return nil
}

// signInConfig is how visitors with tokens of sandboxed come to previews.
func (d *Daemon) signInConfig() (c preview.SignInConfig, err error) {
	if c.Keys, err = preview.ParseKeys(string(d.cfg.PreviewKeys)); err != nil {
		return c, err
	}
	if err := preview.CheckSignIn(d.cfg.AuthRedirectURL, d.cfg.ForwardAuthDeny); err != nil {
		return c, err
	}
	c.Redirect, c.DenyMode = d.cfg.AuthRedirectURL, d.cfg.ForwardAuthDeny
	c.API, err = url.Parse(d.baseURL())
	return c, err
}

// signIn answers at the endpoints by which such visitors come in.
func (d *Daemon) signIn(w http.ResponseWriter, r *http.Request) {
	if d.previews == nil {
		d.refuse(w, r, errs.E(errs.Unsupported, "this daemon serves no previews").Hint("the operator sets preview-listen"))
		return
	}
	d.previews.signIn.ServeHTTP(w, r)
}

// previewURL is where a port of a sandbox is seen; "" is nowhere.
func (d *Daemon) previewURL(id string, port int) string {
	if d.previews == nil {
		return ""
	}
	return d.previews.names.URL(id, port)
}

// PreviewAddr is the address that previews are served on; nil without them.
func (d *Daemon) PreviewAddr() net.Addr {
	if d.previews == nil {
		return nil
	}
	return d.previews.listener.Addr()
}
