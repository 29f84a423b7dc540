package guestd

import (
	"context"
	"io"
	"net"
	"sync"
)

// maxEgress bounds the streams to the outside that are open at once.
const maxEgress = 1024

// egress is the sandbox's proxy port: every connection to it becomes a stream
// to the host, byte for byte. Who is allowed to go where is decided there.
type egress struct {
	listener net.Listener
	up       *uplink
}

func listenEgress(address string, up *uplink) (*egress, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return &egress{listener: l, up: up}, nil
}

// run serves until ctx ends and then closes everything.
func (e *egress) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { e.listener.Close() })
	defer stop()
	var streams sync.WaitGroup
	defer streams.Wait()
	slots := make(chan struct{}, maxEgress)
	for {
		// Beyond the bound, connections wait in the kernel's backlog.
		select {
		case <-ctx.Done():
			return
		case slots <- struct{}{}:
		}
		conn, err := e.listener.Accept()
		if err != nil {
			<-slots
			if ctx.Err() != nil {
				return
			}
			continue
		}
		streams.Go(func() {
			defer func() { <-slots }()
			e.serve(ctx, conn)
		})
	}
}

func (e *egress) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	out, err := e.up.dial(ctx, kindEgress)
	if err != nil {
		// The client speaks HTTP to a proxy; it is owed an answer in HTTP.
		_, _ = io.WriteString(conn, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"+
			"the way out of this sandbox is not connected at the moment\n")
		return
	}
	defer func() { _ = out.Close() }()
	stop := context.AfterFunc(ctx, func() { conn.Close(); _ = out.Close() })
	defer stop()
	join(conn, out)
}
