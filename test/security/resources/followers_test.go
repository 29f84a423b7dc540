package resources_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// TestFollowersOfEventsOfATenant: each follower reads the database for every
// event. A tenant has a bound of them, and the others are answered while all of
// its followers have something to read.
func TestFollowersOfEventsOfATenant(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	attacker, victim := d.client(acme), d.client(other)
	for c, id := range map[*client.Client]string{attacker: "attacker", victim: "victim"} {
		if _, err := c.Create(ctx, client.CreateOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	const most = 256
	follow := "GET /v1/sandboxes/attacker/events?follow=true HTTP/1.1"
	conns := make(chan net.Conn, most)
	crowd(most, func() {
		conn := d.send(acme, follow, "")
		conns <- conn
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 200" {
			t.Errorf("a follower: %q, %v", head, err)
		}
	})
	if status := d.get(acme, follow, ""); status != "429" {
		t.Errorf("one follower more: %s, want 429", status)
	}
	for id, token := range map[string]string{"victim": other, "attacker": operator} {
		if status := d.get(token, "GET /v1/sandboxes/"+id+"/events?follow=true HTTP/1.1", ""); status != "200" {
			t.Errorf("a follower of another client: %s, want 200", status)
		}
	}
	stop := make(chan struct{})
	made := make(chan struct{})
	go func() {
		defer close(made)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = attacker.Exec(ctx, "attacker", client.Shell("true")) // for its events
			}
		}
	}()
	for range 10 {
		run(t, victim, "victim", "true")
	}
	close(stop)
	<-made
	d.bounded("all followers that a tenant may have")
	close(conns)
	for conn := range conns {
		_ = conn.Close()
	}
	for ctx.Err() == nil {
		if status := d.get(acme, follow, ""); status == "200" {
			return
		}
	}
	t.Error("a tenant cannot follow after all its followers have left")
}

// TestFollowersOfOutputOfATenant: a command that prints byte by byte wakes all
// that follow it for each. Those of a tenant that has many get larger pieces,
// and all of the output.
func TestFollowersOfOutputOfATenant(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	attacker, victim := d.client(acme), d.client(other)
	for c, id := range map[*client.Client]string{attacker: "attacker", victim: "victim"} {
		if _, err := c.Create(ctx, client.CreateOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	const (
		followers = 400
		bytes     = 1000
	)
	script := fmt.Sprintf("read line; for i in $(seq %d); do printf x; sleep 0.001; done", bytes)
	p, err := attacker.StartExec(ctx, "attacker", client.ExecOptions{Shell: script, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	var events, printed, ends atomic.Int64
	var reading sync.WaitGroup
	crowd(followers, func() {
		conn := d.send(acme, "GET /v1/sandboxes/attacker/execs/1/stream HTTP/1.1\r\nConnection: close", "")
		reading.Go(func() {
			lines := bufio.NewScanner(conn)
			kind := ""
			for lines.Scan() {
				line := lines.Text()
				if name, ok := strings.CutPrefix(line, "event: "); ok {
					if kind = name; kind == "stdout" {
						events.Add(1)
					}
					if kind == "exit" {
						ends.Add(1)
					}
				}
				if strings.HasPrefix(line, "data: ") && kind == "stdout" {
					printed.Add(int64(strings.Count(line, "x")))
				}
			}
		})
	})
	if _, err := io.WriteString(p.Stdin(ctx), "go\n"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		run(t, victim, "victim", "true")
	}
	reading.Wait()
	if ends.Load() != followers || printed.Load() != followers*bytes {
		t.Errorf("%d of %d followers saw the end, and all of them %d bytes, want %d", ends.Load(), followers, printed.Load(), followers*bytes)
	}
	if n := events.Load(); n > followers*bytes/5 {
		t.Errorf("%d followers were woken %d times for %d bytes", followers, n, bytes)
	}
}
