//go:build root

package durability_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// load is what runs until the daemon is killed.
type load struct {
	cancel  context.CancelFunc
	group   sync.WaitGroup
	answers atomic.Int64 // of all workers
}

func begin(url string, all []*worker) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{cancel: cancel}
	for _, w := range all {
		c := &client{ctx: ctx, url: url, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 20}}}
		l.group.Go(func() {
			defer c.http.CloseIdleConnections()
			for _, b := range w.boxes {
				w.follow(l, c, b)
			}
			for w.step(l, c) {
				l.answers.Add(1)
			}
		})
	}
	return l
}

// end waits until every client has noticed that the daemon is gone.
func (l *load) end() {
	l.cancel()
	l.group.Wait()
}

// client sends requests until the daemon is gone.
type client struct {
	ctx  context.Context
	url  string
	http *http.Client
}

// call reports no answer as status 0.
func (c *client) call(method, path, body string) (status int, text string) {
	req, err := http.NewRequestWithContext(c.ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(answer)
}

// readAlong reads the output while it comes and compares it.
func (x *command) readAlong(c *client, id string) {
	req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, fmt.Sprintf("%s/v1/sandboxes/%s/execs/%d/output?follow=true", c.url, id, x.seq), nil)
	if err != nil {
		return
	}
	res, err := c.http.Do(req)
	if err != nil {
		return
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return
	}
	want := x.output()
	buf := make([]byte, 16<<10)
	for at := 0; ; {
		n, err := res.Body.Read(buf)
		x.mu.Lock()
		if at+n > len(want) || string(buf[:n]) != want[at:at+n] {
			x.broken = fmt.Sprintf("at offset %d: %.80q", at, buf[:n])
		}
		at += n
		x.read = int64(at)
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// follow reads the events of a sandbox as they come, from the last one that
// was seen.
func (w *worker) follow(l *load, c *client, b *box) {
	l.group.Go(func() {
		b.mu.Lock()
		after := int64(0)
		if n := len(b.events); n > 0 {
			after = b.events[n-1].Cursor
		}
		b.mu.Unlock()
		req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, fmt.Sprintf("%s/v1/sandboxes/%s/events?follow=true&after=%d", c.url, b.id, after), nil)
		if err != nil {
			return
		}
		res, err := c.http.Do(req)
		if err != nil {
			return
		}
		defer res.Body.Close()
		lines := bufio.NewScanner(res.Body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var e seen
			if json.Unmarshal([]byte(data), &e) == nil && e.Cursor > 0 {
				b.mu.Lock()
				b.events = append(b.events, e)
				b.mu.Unlock()
			}
		}
	})
}
