package guestd

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/redirect"
	"github.com/cubbyhq/cubby/internal/relay"
	"github.com/cubbyhq/cubby/internal/resolver"
)

// maxEgress bounds the streams to the outside that are open at once, through
// both doors.
const maxEgress = 1024

// maxNames bounds the names that have an address at once.
const maxNames = 8192

const acceptPause = 10 * time.Millisecond

// door is where programs of the sandbox connect to get out: every connection to
// it becomes a stream to the host. Who is allowed to go where is decided there.
type door struct {
	listener net.Listener
	serve    func(ctx context.Context, conn net.Conn)
}

// egress is the ways out of the sandbox.
type egress struct {
	up       *uplink
	slots    chan struct{} // a token for each stream
	doors    []door
	names    *resolver.Names
	resolver *resolver.Server // nil: programs need the proxy
}

// listenEgress takes the ports of the ways out that boot names.
func listenEgress(cfg Config, up *uplink) (_ *egress, err error) {
	e := &egress{up: up, slots: make(chan struct{}, maxEgress)}
	defer func() {
		if err != nil {
			for _, d := range e.doors {
				_ = d.listener.Close()
			}
		}
	}()
	open := func(address string, serve func(context.Context, net.Conn)) error {
		l, err := net.Listen("tcp", address)
		if err == nil {
			e.doors = append(e.doors, door{l, serve})
		}
		return err
	}
	boot := cfg.Boot
	if boot.GetEgressListen() == "" {
		return e, nil
	}
	if err := open(boot.GetEgressListen(), e.proxied); err != nil {
		return nil, err
	}
	if boot.GetResolverListen() == "" {
		return e, nil
	}
	if err := open(boot.GetRedirectListen(), e.transparent); err != nil {
		return nil, err
	}
	address, err := netip.ParseAddrPort(boot.GetResolverListen())
	if err != nil {
		return nil, err
	}
	e.names = resolver.NewNames(redirect.Names(), maxNames)
	policy := &policyLine{up: up}
	e.resolver, err = resolver.Listen(address, resolver.Config{Names: e.names, Ask: policy.ask, Log: cfg.Log})
	return e, err
}

// run serves until ctx ends and then closes everything.
func (e *egress) run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	if e.resolver != nil {
		parts.Go(func() { e.resolver.Run(ctx) })
	}
	for _, d := range e.doors {
		parts.Go(func() { e.accept(ctx, d) })
	}
}

func (e *egress) accept(ctx context.Context, d door) {
	stop := context.AfterFunc(ctx, func() { d.listener.Close() })
	defer stop()
	var streams sync.WaitGroup
	defer streams.Wait()
	for {
		// Beyond the bound, connections wait in the kernel's backlog.
		select {
		case <-ctx.Done():
			return
		case e.slots <- struct{}{}:
		}
		conn, err := d.listener.Accept()
		if err != nil {
			<-e.slots
			if ctx.Err() != nil {
				return
			}
			time.Sleep(acceptPause) // out of descriptors: they come back
			continue
		}
		streams.Go(func() {
			defer func() { <-e.slots }()
			d.serve(ctx, conn)
		})
	}
}

// proxied is the proxy port: what comes goes to the host's proxy, byte for byte.
func (e *egress) proxied(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	out, err := e.up.dial(ctx, kindEgress)
	if err != nil {
		// The client speaks HTTP to a proxy; it is owed an answer in HTTP.
		_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+
			"the way out of this sandbox is not connected at the moment\n")
		return
	}
	defer func() { _ = e.up.hangUp(out) }()
	stop := context.AfterFunc(ctx, func() { conn.Close(); _ = out.Close() })
	defer stop()
	relay.Join(conn, out)
}
