package resources_test

import (
	"context"
	"io"
	"net"
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
