package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
)

const (
	previewGoal = 300 // MB/s down
	firstGoal   = 50  // ms of a first answer beyond the wake
)

// visitGoal is the goal of what a preview adds to a request, in ms.
var visitGoal = map[string]float64{"gvisor": 1, "container": 0.5}

// preview measures a server in a sandbox as it is seen through its preview, beside
// the same server seen from inside, and beside a plain reverse proxy of Go's on
// this machine.
func (b *bench) preview(ctx context.Context) error {
	s := b.report.section("preview", "Previews: a server in a sandbox, seen from outside")
	requests := Probe{Kept: b.count(2000, 300), New: b.count(200, 40), Plain: true}
	transfers := Probe{Download: 500e6, Upload: 500e6, Rounds: 3, Plain: true}
	if b.Quick {
		transfers.Download, transfers.Upload, transfers.Rounds = 200e6, 200e6, 1
	}
	s.Note = "The client is the same program everywhere, and HTTP is without TLS. The floor of a sandbox is the client inside of it; \"added\" is the p50 of a request " +
		"through the preview less that one, and the client pays for gVisor only inside: what a visitor waits is the request itself. The other floor is the same server on this machine, directly and behind a reverse proxy that does nothing else (httputil.ReverseProxy). " +
		"A first answer is that of a server in a sandbox that sleeps, and a wake the call of the API that does nothing else."
	if err := b.previewFloor(ctx, s, requests, transfers); err != nil {
		return err
	}
	for _, isolation := range b.Isolations {
		if err := b.previewOf(ctx, s, isolation, requests, transfers); err != nil {
			return fmt.Errorf("%s: %w", isolation, err)
		}
	}
	return nil
}

// previewFloor measures a server of this machine.
func (b *bench) previewFloor(ctx context.Context, s *Section, requests, transfers Probe) error {
	server, err := startServerApart(ctx)
	if err != nil {
		return err
	}
	defer server.close()
	at, err := url.Parse(server.plain)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	proxy := &http.Server{
		Handler:           &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }, ErrorLog: log.New(io.Discard, "", 0)},
		ReadHeaderTimeout: time.Minute,
	}
	served := make(chan struct{})
	go func() {
		_ = proxy.Serve(l) // until it is closed
		close(served)
	}()
	defer func() {
		_ = proxy.Close()
		<-served
	}()
	direct, through := requests.to(server), requests.to(server)
	through.URL = "http://" + l.Addr().String()
	if err := b.visited(ctx, s, "this machine, direct", "this machine, Go's proxy", b.probeOutside, direct, through); err != nil {
		return err
	}
	direct, through = transfers.to(server), transfers.to(server)
	through.URL = "http://" + l.Addr().String()
	return b.carried(ctx, s, "this machine, direct", "this machine, Go's proxy", b.probeOutside, direct, through, 0)
}

// visited measures requests without and with something in between.
func (b *bench) visited(ctx context.Context, s *Section, floor, name string, near func(context.Context, Probe) (Probed, error), direct, through Probe) error {
	without, err := near(ctx, direct)
	if err != nil {
		return err
	}
	with, err := b.probeOutside(ctx, through)
	if err != nil {
		return err
	}
	s.times(floor+": request", without.Kept, 0)
	s.times(name+": request", with.Kept, 0)
	s.over(name+": request", floor+": request")
	s.value(name+": added to a request", "ms", ms(sample(with.Kept).quantile(0.5))-ms(sample(without.Kept).quantile(0.5)), len(with.Kept), visitGoal[name], false)
	s.times(floor+": new connection", without.New, 0)
	s.times(name+": new connection", with.New, 0)
	s.over(name+": new connection", floor+": new connection")
	return nil
}

// carried measures transfers without and with something in between.
func (b *bench) carried(ctx context.Context, s *Section, floor, name string, near func(context.Context, Probe) (Probed, error), direct, through Probe, goal float64) error {
	without, err := near(ctx, direct)
	if err != nil {
		return err
	}
	with, err := b.probeOutside(ctx, through)
	if err != nil {
		return err
	}
	s.value(floor+": download", "MB/s", median(without.Download), len(without.Download), 0, true)
	s.value(name+": download", "MB/s", median(with.Download), len(with.Download), goal, true)
	s.over(name+": download", floor+": download")
	s.value(floor+": upload", "MB/s", median(without.Upload), len(without.Upload), 0, true)
	s.value(name+": upload", "MB/s", median(with.Upload), len(with.Upload), 0, true)
	s.over(name+": upload", floor+": upload")
	return nil
}

func (b *bench) previewOf(ctx context.Context, s *Section, isolation string, requests, transfers Probe) error {
	id, remove, err := b.box(ctx, isolation)
	if err != nil {
		return err
	}
	defer remove()
	if err := b.sendProgram(ctx, id); err != nil {
		return err
	}
	server, err := b.serveInside(ctx, id)
	if err != nil {
		return err
	}
	seen, err := b.open(ctx, id, server)
	if err != nil {
		return err
	}
	at := func(p Probe, address string) Probe {
		p.URL, p.Root = address, server.Root
		if address != server.Plain {
			p.Name = leads(seen)
		}
		return p
	}
	inside := func(ctx context.Context, p Probe) (Probed, error) { return b.probeInside(ctx, id, p) }
	outside := seen.Scheme + "://" + seen.Host
	floor := isolation + ", from inside"
	if err := b.visited(ctx, s, floor, isolation, inside, at(requests, server.Plain), at(requests, outside)); err != nil {
		return err
	}
	if err := b.carried(ctx, s, floor, isolation, inside, at(transfers, server.Plain), at(transfers, outside), previewGoal); err != nil {
		return err
	}
	if isolation == "gvisor" {
		return b.firstAnswers(ctx, s, id, outside)
	}
	return nil
}

// serveInside starts the server of probes in a sandbox, where it goes on.
func (b *bench) serveInside(ctx context.Context, id string) (server served, err error) {
	e, err := b.client.Exec(ctx, id, client.Shell(
		"(sleep 100000 | setsid /workspace/cubby bench probe "+serveProbes+" >/tmp/served 2>/tmp/failed) </dev/null >/dev/null 2>&1 & "+
			"until [ -s /tmp/served ] || [ -s /tmp/failed ]; do sleep 0.05; done; cat /tmp/served /tmp/failed"))
	if err == nil {
		err = e.Err()
	}
	if err != nil {
		return server, err
	}
	if err := json.Unmarshal([]byte(e.Stdout), &server); err != nil {
		return server, fmt.Errorf("a server inside: %w: %s", err, e.Stdout)
	}
	return server, nil
}

// leads is where a preview's name leads: browsers know that names below localhost
// are this machine, and Go's resolver does not.
func leads(to *url.URL) string {
	if strings.HasSuffix(to.Hostname(), ".localhost") {
		return ownLoopback.String()
	}
	return to.Hostname()
}

// open makes the port of a server one that everybody sees, and returns where.
func (b *bench) open(ctx context.Context, id string, server served) (*url.URL, error) {
	inside, err := url.Parse(server.Plain)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(inside.Port())
	if err != nil {
		return nil, err
	}
	public := "public"
	if _, err := b.client.Update(ctx, id, client.Patch{Visibility: &public, Ports: []int{port}}); err != nil {
		return nil, err
	}
	seen, err := b.client.PortURL(ctx, id, port)
	if err != nil {
		return nil, err
	}
	return url.Parse(seen)
}

// firstAnswers measures how long a request takes that finds the sandbox asleep,
// and a wake alone, in turns.
func (b *bench) firstAnswers(ctx context.Context, s *Section, id, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	var wakes, answers sample
	for i := range b.count(20, 5) + 1 {
		if err := b.putToSleep(ctx, id); err != nil {
			return err
		}
		wake, err := timed(func() error {
			_, err := b.client.Wake(ctx, id)
			return err
		})
		if err != nil {
			return err
		}
		if err := b.putToSleep(ctx, id); err != nil {
			return err
		}
		first, err := timed(func() error { return firstAnswer(ctx, u) })
		if err != nil {
			return err
		}
		if i > 0 { // the first round fills caches
			wakes.add(wake)
			answers.add(first)
		}
	}
	s.times("gvisor: wake", wakes, 0)
	s.times("gvisor: first answer", answers, 0)
	s.over("gvisor: first answer", "gvisor: wake")
	s.value("gvisor: first answer, less the wake", "ms", ms(answers.quantile(0.5))-ms(wakes.quantile(0.5)), len(answers), firstGoal, false)
	return nil
}

// firstAnswer asks on a connection of its own.
func firstAnswer(ctx context.Context, at *url.URL) error {
	t := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(leads(at), at.Port()))
	}}
	defer t.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String()+"/small", http.NoBody)
	if err != nil {
		return err
	}
	return answer(&http.Client{Transport: t}, r, io.Discard)
}
