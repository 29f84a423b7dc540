package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// Probe is what a client of the egress path is to do. The same program does it
// inside a sandbox and outside, so that only the way differs.
type Probe struct {
	// URL and Root are the server's address and its certificate; an empty URL
	// is a server of the probe's own, in the same process.
	URL, Root string
	// Apart makes that server a process of its own.
	Apart bool
	// Proxy, when not empty, is the way.
	Proxy string
	// Plain speaks no TLS, also in a tunnel.
	Plain bool
	// Name, when not empty, is what the client connects to in place of the
	// address in the URL, looking it up each time.
	Name string

	Kept     int   // small requests on one connection
	New      int   // small requests, each on a connection of its own
	Download int64 // bytes
	Upload   int64 // bytes
	Rounds   int   // how often a download and an upload
	Tunnels  int   // connections that are open at once
	Lookups  int   // of Name
	// NewLookups are of names below Name, each for the first time.
	NewLookups int
}

// Probed is what came out.
type Probed struct {
	Kept, New        []time.Duration `json:",omitempty"`
	Lookups          []time.Duration `json:",omitempty"`
	NewLookups       []time.Duration `json:",omitempty"`
	GoLookups        []time.Duration `json:",omitempty"`
	OwnLookups       []time.Duration `json:",omitempty"`
	Download, Upload []float64       `json:",omitempty"` // MB/s
	// Open connections had an answer, Answered of them one again after the
	// gate.
	Open, Answered int
	// AgentBefore and AgentWith are the resident bytes of process 1, without
	// and with the connections.
	AgentBefore, AgentWith int64
}

const (
	atOnce       = 32       // connections that are opened at the same time
	eachTransfer = 64 << 10 // bytes that each of many connections carries before it rests
)

// Run does it.
func (p Probe) Run(ctx context.Context) (out Probed, err error) {
	if p.URL == "" {
		start := func(ctx context.Context) (*probeServer, error) { return startProbeServer(ctx, ownLoopback) }
		if p.Apart {
			start = startServerApart
		}
		s, err := start(ctx)
		if err != nil {
			return out, err
		}
		defer s.close()
		p = p.to(s)
	}
	c, err := p.client()
	if err != nil {
		return out, err
	}
	defer c.CloseIdleConnections()
	if p.Kept > 0 {
		if out.Kept, err = repeat(ctx, p.Kept, func() error { return p.get(ctx, c, "/small", nil) }); err != nil {
			return out, fmt.Errorf("kept: %w", err)
		}
	}
	if p.New > 0 {
		if out.New, err = repeat(ctx, p.New, func() error {
			c, err := p.client()
			if err != nil {
				return err
			}
			defer c.CloseIdleConnections()
			return p.get(ctx, c, "/small", nil)
		}); err != nil {
			return out, fmt.Errorf("new: %w", err)
		}
	}
	if p.Lookups > 0 {
		if err := p.lookups(ctx, &out); err != nil {
			return out, err
		}
	}
	for range p.Rounds {
		if p.Download > 0 {
			d, err := timed(func() error { return p.get(ctx, c, fmt.Sprintf("/bytes?n=%d", p.Download), nil) })
			if err != nil {
				return out, fmt.Errorf("download: %w", err)
			}
			out.Download = append(out.Download, float64(p.Download)/1e6/d.Seconds())
		}
		if p.Upload > 0 {
			d, err := timed(func() error { return p.post(ctx, c) })
			if err != nil {
				return out, fmt.Errorf("upload: %w", err)
			}
			out.Upload = append(out.Upload, float64(p.Upload)/1e6/d.Seconds())
		}
	}
	if p.Tunnels > 0 {
		if err := p.tunnels(ctx, c, &out); err != nil {
			return out, fmt.Errorf("tunnels: %w", err)
		}
	}
	return out, nil
}

// tunnels opens connections, each of which carries something, waits at the
// gate while they are open and then asks on each again.
func (p Probe) tunnels(ctx context.Context, gate *http.Client, out *Probed) error {
	clients := make([]*http.Client, p.Tunnels)
	for i := range clients {
		c, err := p.client()
		if err != nil {
			return err
		}
		defer c.CloseIdleConnections()
		clients[i] = c
	}
	// The first request of all is the gate's connection.
	if err := p.get(ctx, gate, "/small", nil); err != nil {
		return err
	}
	out.AgentBefore = statusNumber(1, "VmRSS") << 10
	each := func(fn func(c *http.Client) error) (int, error) {
		var good atomic.Int64
		var group errgroup.Group
		group.SetLimit(atOnce)
		for _, c := range clients {
			group.Go(func() error {
				err := fn(c)
				if err == nil {
					good.Add(1)
				}
				return err
			})
		}
		err := group.Wait()
		return int(good.Load()), err
	}
	// Those that fail are missing in the count.
	var err error
	if out.Open, err = each(func(c *http.Client) error {
		return p.get(ctx, c, fmt.Sprintf("/bytes?n=%d", eachTransfer), nil)
	}); out.Open == 0 {
		return err
	}
	if err := p.get(ctx, gate, "/gate", nil); err != nil {
		return err
	}
	out.AgentWith = statusNumber(1, "VmRSS") << 10
	out.Answered, _ = each(func(c *http.Client) error {
		var kept bool
		err := p.get(ctx, c, "/small", &kept)
		if err == nil && !kept {
			err = errors.New("the connection was lost")
		}
		return err
	})
	return nil
}

// client returns a client with one connection of its own.
func (p Probe) client() (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(p.Root)) {
		return nil, errors.New("no certificate of the server")
	}
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
		MaxConnsPerHost: 1, WriteBufferSize: transferBuffer,
	}
	if p.Name != "" {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(p.Name, port))
		}
	}
	if p.Proxy != "" {
		proxy, err := url.Parse(p.Proxy)
		if err != nil {
			return nil, err
		}
		t.Proxy = http.ProxyURL(proxy)
		if p.Plain {
			t.Proxy, t.DialContext = nil, tunnelBy(proxy.Host)
		}
	}
	return &http.Client{Transport: t}, nil
}

// tunnelBy dials through a proxy: a client of HTTP asks for a tunnel only to
// speak TLS in it.
func tunnelBy(proxy string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, proxy)
		if err != nil {
			return nil, err
		}
		if _, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err == nil {
			err = granted(conn)
		}
		if err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// granted reads the answer to a CONNECT. A server of HTTP says nothing before it
// is asked, so nothing else comes with it.
func granted(conn net.Conn) error {
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

// to returns the probe of a server.
func (p Probe) to(s *probeServer) Probe {
	p.URL, p.Root = s.url, s.root
	if p.Plain {
		p.URL = s.plain
	}
	return p
}

// get wants an answer and reads all of it. kept, when not nil, tells whether
// it came on a connection that was there.
func (p Probe) get(ctx context.Context, c *http.Client, path string, kept *bool) error {
	if kept != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { *kept = i.Reused }})
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, http.NoBody)
	if err != nil {
		return err
	}
	return answer(c, r, io.Discard)
}

func (p Probe) post(ctx context.Context, c *http.Client) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/bytes", io.NopCloser(io.LimitReader(newNoise(), p.Upload)))
	if err != nil {
		return err
	}
	r.ContentLength = p.Upload
	var text strings.Builder
	if err := answer(c, r, &text); err != nil {
		return err
	}
	if got := strings.TrimSpace(text.String()); got != fmt.Sprint(p.Upload) {
		return fmt.Errorf("%s of %d bytes arrived", got, p.Upload)
	}
	return nil
}

// answer sends a request and wants a good and whole answer.
func answer(c *http.Client, r *http.Request, to io.Writer) error {
	res, err := c.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	_, err = io.CopyBuffer(onlyWriter{to}, res.Body, make([]byte, min(max(res.ContentLength, 512), transferBuffer)))
	return err
}

// RunProbe does a [Probe] that comes as JSON and writes what came out, or is
// the server of one when the text says so.
func RunProbe(ctx context.Context, text string, out io.Writer) error {
	if text == serveProbes {
		return serveApart(ctx, os.Stdin, out)
	}
	var p Probe
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	probed, err := p.Run(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(probed)
}
