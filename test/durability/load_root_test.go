//go:build root

package durability_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// worker drives one sandbox after another and remembers what it was told.
type worker struct {
	name string
	d    *daemon
	rng  *rand.Rand
	n    int // names sandboxes, commands and files
	box  *box
	gone []*box // acknowledged as destroyed, and not checked yet

	created, stopped int
}

// box is what a client knows of a sandbox.
type box struct {
	id    string
	doubt string // the act whose answer never came; "" when there is none
	up    bool   // the last answer was that it runs

	files map[string][]string // by path: the contents that it may have

	mu     sync.Mutex
	execs  []*command // in the order of their requests
	events []seen     // in order, without gaps; guarded by mu
	known  int        // how many of them a check has had; guarded by mu
}

// command is one exec whose output and effect are known beforehand.
type command struct {
	token   string
	session string
	lines   int
	code    int
	seq     int64 // 0 when the answer never came
	ended   bool  // its sandbox was stopped or destroyed after it was asked for
	counted bool  // in the figures

	mu     sync.Mutex
	read   int64 // bytes that a client has had; guarded by mu
	broken string
}

// script appends the token to a file, which counts how often it ran, and has
// one program print two bursts with a pause between them: however it is ended,
// what it printed is a beginning of the whole. What the shell says of a program
// that is stopped is not counted.
func (c *command) script(pause string) string {
	return fmt.Sprintf(`{ echo %[1]s >>/workspace/ran; awk 'BEGIN { for (i = 1; i <= %[2]d; i++) print "%[1]s", i; fflush(); system("sleep %[4]s"); for (; i <= %[3]d; i++) print "%[1]s", i; exit %[5]d }'; } 2>/dev/null`,
		c.token, c.lines/2, c.lines, pause, c.code)
}

func (c *command) output() string {
	var b strings.Builder
	for i := 1; i <= c.lines; i++ {
		fmt.Fprintf(&b, "%s %d\n", c.token, i)
	}
	return b.String()
}

// seen is an event as a client got it.
type seen struct {
	Cursor int64  `json:"cursor"`
	Kind   string `json:"kind"`
	Seq    int64  `json:"seq"`
	Status string `json:"status"`
}

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
			if w.box != nil {
				w.follow(l, c, w.box)
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

// step does one thing and reports whether it was answered.
func (w *worker) step(l *load, c *client) bool {
	w.n++
	if w.box == nil {
		return w.create(l, c)
	}
	if !w.box.up {
		return w.act(c, "start", "POST", "/start", http.StatusOK)
	}
	switch n := w.rng.IntN(100); {
	case n < 70:
		return w.exec(l, c)
	case n < 85:
		return w.write(c)
	case n < 92:
		return w.act(c, "stop", "POST", "/stop", http.StatusOK)
	default:
		return w.act(c, "destroy", "DELETE", "", http.StatusNoContent)
	}
}

func (w *worker) create(l *load, c *client) bool {
	b := &box{id: fmt.Sprintf("%s-%d", w.name, w.n), doubt: "create", files: map[string][]string{}}
	w.box = b
	status, text := c.call("POST", "/v1/sandboxes", fmt.Sprintf(`{"id":%q,"isolation":%q}`, b.id, w.d.isolation))
	switch status {
	case 0:
		return false
	case http.StatusCreated:
		b.doubt, b.up = "", true
		w.created++
		w.follow(l, c, b)
		return true
	}
	w.d.t.Errorf("create %s = %d %s", b.id, status, text)
	return false
}

// act changes the state of the sandbox.
func (w *worker) act(c *client, what, method, path string, want int) bool {
	b := w.box
	b.doubt = what
	for _, x := range b.execs {
		x.ended = x.ended || what != "start"
	}
	switch status, text := c.call(method, "/v1/sandboxes/"+b.id+path, ""); status {
	case 0:
		return false
	case want:
		b.doubt, b.up = "", what == "start"
		if what == "stop" {
			w.stopped++
		}
		if what == "destroy" {
			w.gone, w.box = append(w.gone, b), nil
		}
		return true
	default:
		w.d.t.Errorf("%s %s = %d %s", what, b.id, status, text)
		return false
	}
}

// write puts a file whose content says which write it was.
func (w *worker) write(c *client) bool {
	path, text := fmt.Sprint("file", w.rng.IntN(4)), fmt.Sprintf("%s content %d %s", w.name, w.n, strings.Repeat("x", w.rng.IntN(20000)))
	before := w.box.files[path]
	if before == nil {
		before = []string{""}
	}
	w.box.files[path] = append(before, text)
	switch status, answer := c.call("PUT", "/v1/sandboxes/"+w.box.id+"/files?path="+path, text); status {
	case 0:
		return false
	case http.StatusOK, http.StatusCreated:
		w.box.files[path] = []string{text}
		return true
	default:
		w.d.t.Errorf("write to %s = %d %s", w.box.id, status, answer)
		return false
	}
}

func (w *worker) exec(l *load, c *client) bool {
	x := &command{token: fmt.Sprintf("%s.%d.%08x", w.name, w.n, w.rng.Uint32()), lines: 2 + w.rng.IntN(4000), code: w.rng.IntN(3)}
	if w.rng.IntN(3) == 0 {
		x.session = fmt.Sprint("s", w.rng.IntN(2))
	}
	b := w.box
	b.execs = append(b.execs, x)
	body, err := json.Marshal(map[string]any{
		"cmd": x.script(fmt.Sprintf("0.%02d", w.rng.IntN(60))), "wait": false, "session": x.session, "env": map[string]string{"SECRET": x.token},
	})
	if err != nil {
		w.d.t.Error(err)
		return false
	}
	status, text := c.call("POST", "/v1/sandboxes/"+b.id+"/exec", string(body))
	switch status {
	case 0:
		return false
	case http.StatusAccepted, http.StatusOK:
		var answer struct {
			Seq int64 `json:"seq"`
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Seq == 0 {
			w.d.t.Errorf("exec = %s", text)
			return false
		}
		x.seq = answer.Seq
		l.group.Go(func() { x.readAlong(c, b.id) })
		return true
	}
	w.d.t.Errorf("exec in %s = %d %s", b.id, status, text)
	return false
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
