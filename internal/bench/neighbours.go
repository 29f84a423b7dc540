package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/client"
)

const (
	// neighbourGoal is how many times as long a command may take because of what
	// another tenant does.
	neighbourGoal = 2
	// neighbourBoxes of each isolation are what the other tenant has.
	neighbourBoxes    = 4
	neighbourThreads  = 1000
	neighbourSearches = 6
	neighbourStreams  = 256

	quietToken = "neighbours-quiet-0001"
	busyToken  = "neighbours-busy-0001"
)

// neighbours are two tenants of a daemon: one runs commands, the other makes load.
type neighbours struct {
	*bench
	url         string
	quiet, busy *client.Client
	boxes       []string // of the busy one
	http        *http.Client
	followed    atomic.Int64 // the newest event that was seen
}

// neighbourLoads are what the busy tenant does; each goes on until its context ends.
var neighbourLoads = []struct {
	name string
	run  func(*neighbours, context.Context) error
}{
	{"processors", inAll("while :; do :; done")},
	{"fsync", inAll("while :; do dd if=/dev/zero of=/tmp/neighbour bs=4k count=1 conv=fsync 2>/dev/null; done")},
	{"forks", inAll("while :; do (:); done")},
	{fmt.Sprintf("%d searches of %d threads", neighbourSearches, neighbourThreads), (*neighbours).search},
	{fmt.Sprintf("%d streams of a busy sandbox's events", neighbourStreams), (*neighbours).follow},
}

// neighbours measures how much longer `true` takes for one tenant while another one
// makes load of each kind: blocks with and without it take turns in one run.
func (b *bench) neighbours(ctx context.Context) error {
	if b.Remote != nil {
		b.note("neighbours: left out, because it needs a daemon of its own")
		return nil
	}
	dir, err := b.ensureDir("neighbours")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.environ = append(b.environ, "CUBBY_TOKENS=bench@quiet:"+quietToken+",bench2@busy:"+busyToken)
	defer func() { b.environ = nil }()
	p, err := b.startDaemon(ctx, dir, "--max-per-tenant=0")
	if err != nil {
		return err
	}
	defer p.stop()
	n := &neighbours{
		bench: b, url: p.url, quiet: client.New(p.url, client.WithToken(quietToken)), busy: client.New(p.url, client.WithToken(busyToken)),
		http: new(http.Client),
	}
	defer func() { n.quiet.Close(); n.busy.Close(); n.http.CloseIdleConnections() }()
	defer n.leave()
	if err := n.settle(ctx); err != nil {
		return err
	}
	s := b.report.section("neighbours", "`true` of one tenant while another one makes load")
	for _, isolation := range b.Isolations {
		box, err := n.quiet.Create(ctx, client.CreateOptions{Image: b.Image, Isolation: isolation})
		if err != nil {
			return err
		}
		for _, load := range neighbourLoads {
			alone, beside, err := n.alternate(ctx, box.ID, func(ctx context.Context) error { return load.run(n, ctx) })
			if err != nil {
				b.note("neighbours, %s, %s: %v", isolation, load.name, err)
				continue
			}
			name := isolation + ", " + load.name
			s.times(name+": alone", alone, 0)
			s.times(name+": beside it", beside, 0)
			s.over(name+": beside it", name+": alone")
			s.value(name+": times as long", "×", float64(beside.quantile(0.5))/float64(max(1, alone.quantile(0.5))), len(beside), neighbourGoal, false)
		}
		if err := n.quiet.Destroy(ctx, box.ID); err != nil {
			b.note("destroy: %v", err)
		}
	}
	s.Note = fmt.Sprintf("The other tenant has %d sandboxes of each isolation, all of which make the first three kinds of load. "+
		"Blocks of ten commands without the load and with it take turns. Figures hold for a machine that does nothing else.", neighbourBoxes)
	return nil
}

// leave destroys the sandboxes of the busy tenant: they would outlive the daemon.
func (n *neighbours) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, id := range n.boxes {
		if err := n.busy.Destroy(ctx, id); err != nil {
			n.note("destroy: %v", err)
		}
	}
}

// settle makes what the busy tenant has.
func (n *neighbours) settle(ctx context.Context) error {
	for _, isolation := range n.Isolations {
		for range neighbourBoxes {
			box, err := n.busy.Create(ctx, client.CreateOptions{Image: n.Image, Isolation: isolation})
			if err != nil {
				return err
			}
			n.boxes = append(n.boxes, box.ID)
		}
	}
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for range n.count(neighbourThreads, neighbourThreads/10) {
		group.Go(func() error { return n.post(within, "/agent/threads", `{"metadata":{"purpose":"bench"}}`) })
	}
	return group.Wait()
}

// alternate runs `true` in blocks, every second of them beside a load.
func (n *neighbours) alternate(ctx context.Context, id string, load func(context.Context) error) (alone, beside sample, err error) {
	const block = 10
	for range 3 {
		if err := n.true(ctx, id); err != nil {
			return nil, nil, err
		}
	}
	for len(alone) < n.count(50, block) {
		v, err := n.block(ctx, id, block)
		if err != nil {
			return nil, nil, err
		}
		alone = append(alone, v...)
		within, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- load(within) }()
		select {
		case <-time.After(time.Second): // it has begun
			v, err = n.block(ctx, id, block)
		case err = <-ended:
			err = fmt.Errorf("the load ended: %w", err)
			ended <- nil
		}
		stop()
		if lerr := <-ended; err == nil && lerr != nil && !errors.Is(lerr, context.Canceled) {
			err = lerr
		}
		if err != nil {
			return nil, nil, err
		}
		beside = append(beside, v...)
	}
	return alone, beside, nil
}

func (n *neighbours) block(ctx context.Context, id string, times int) (v sample, err error) {
	for range times {
		d, err := timed(func() error { return n.true(ctx, id) })
		if err != nil {
			return nil, err
		}
		v.add(d)
	}
	return v, nil
}

func (n *neighbours) true(ctx context.Context, id string) error {
	e, err := n.quiet.Exec(ctx, id, client.Command("true"))
	if err != nil {
		return err
	}
	return e.Err()
}

// inAll runs a script in all sandboxes of the busy tenant.
func inAll(script string) func(*neighbours, context.Context) error {
	return func(n *neighbours, ctx context.Context) error {
		group, within := errgroup.WithContext(ctx)
		for _, id := range n.boxes {
			group.Go(func() error {
				o := client.Shell(script)
				o.KillOnCancel = true
				_, err := n.busy.Exec(within, id, o)
				return unlessOver(ctx, err)
			})
		}
		return group.Wait()
	}
}

// unlessOver is nil when a load ended because it was to.
func unlessOver(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// search lists all threads of the busy tenant, again and again.
func (n *neighbours) search(ctx context.Context) error {
	group, within := errgroup.WithContext(ctx)
	for range neighbourSearches {
		group.Go(func() error {
			for within.Err() == nil {
				if err := n.post(within, "/agent/threads/search", `{"limit":1000}`); err != nil {
					return unlessOver(ctx, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// follow has a sandbox run commands, and many streams of its events open, from those on
// that the streams before have seen.
func (n *neighbours) follow(ctx context.Context) error {
	id := n.boxes[0]
	group, within := errgroup.WithContext(ctx)
	for range neighbourStreams {
		group.Go(func() error {
			for e, err := range n.busy.FollowEvents(within, id, n.followed.Load()) {
				if err != nil {
					return unlessOver(ctx, err)
				}
				for was := n.followed.Load(); was < e.Cursor && !n.followed.CompareAndSwap(was, e.Cursor); {
					was = n.followed.Load()
				}
			}
			return unlessOver(ctx, errors.New("a stream of events ended"))
		})
	}
	group.Go(func() error {
		for within.Err() == nil {
			if _, err := n.busy.Exec(within, id, client.Command("true")); err != nil {
				return unlessOver(ctx, err)
			}
		}
		return nil
	})
	return group.Wait()
}

// post makes a request of the busy tenant and reads its answer.
func (n *neighbours) post(ctx context.Context, path, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+busyToken)
	res, err := n.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10)) // what there is of it
		return fmt.Errorf("%s: %s: %s", path, res.Status, strings.TrimSpace(string(text)))
	}
	_, err = io.Copy(io.Discard, res.Body)
	return err
}
