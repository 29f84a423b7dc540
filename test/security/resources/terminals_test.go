package resources_test

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/client"
)

// TestInputThatNoTerminalTakes: many clients of one terminal whose program reads
// nothing type as much as each may, in one piece or in pieces of a byte with a
// new size behind each. What waits for the program is the daemon's memory.
func TestInputThatNoTerminalTakes(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for c, id := range map[*client.Client]string{d.client(acme): "attacker", d.client(other): "victim"} {
		if _, err := c.Create(ctx, client.CreateOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	url := "ws://" + d.address + "/v1/sandboxes/attacker/terminal?cmd=stty%20raw%20-echo%3B%20exec%20sleep%201000"
	var mu sync.Mutex
	refused := 0
	open := func() *websocket.Conn {
		c, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + acme}}, Subprotocols: []string{"cubby.terminal.v1"},
		})
		if err != nil {
			mu.Lock()
			refused++
			mu.Unlock()
			return nil
		}
		t.Cleanup(func() { _ = c.CloseNow() })
		return c
	}
	piece := bytes.Repeat([]byte("x"), 250<<10)
	crowd(400, func() {
		c := open()
		for i := 0; c != nil && i < 4; i++ {
			if c.Write(ctx, websocket.MessageBinary, piece) != nil {
				return
			}
		}
	})
	t.Logf("%d were refused", refused)
	d.bounded("input that is not taken")

	crowd(16, func() {
		c := open()
		for i := 0; c != nil && i < 100_000; i++ {
			if c.Write(ctx, websocket.MessageBinary, piece[:1]) != nil || c.Write(ctx, websocket.MessageText, []byte(`{"type":"resize","cols":80,"rows":24}`)) != nil {
				return
			}
		}
	})
	d.bounded("input in small pieces that is not taken")
	run(t, d.client(other), "victim", "true")
}
