package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// warmCommand are the goals of a create from the pool with its first command, and
// warmCell that with its first cell, in ms.
var warmCommand = map[string]float64{"gvisor": 15, "container": 10}

const warmCell = 30

// poolWait is how long a sandbox to keep ready may take.
const poolWait = 2 * time.Minute

// pool measures creates that get a sandbox which was kept ready, beside the start of
// a bare runtime and a cell in a kernel that runs. Between two creates the pool
// is filled, which is not counted.
func (b *bench) pool(ctx context.Context) error {
	if b.Remote != nil {
		b.note("pool: left out, because it needs a daemon of its own")
		return nil
	}
	s := b.report.section("pool", "Create from the pool")
	list := b.runtimes()
	defer closeRuntimes(list)
	bundle, err := b.bundle("true", "/bin/true")
	if err != nil {
		return err
	}
	n := 0
	for _, r := range list {
		v, err := repeat(ctx, b.count(10, 3), func() error {
			n++
			return r.run(ctx, bundle, fmt.Sprintf("floor-%s-pool%02d", r.name, n))
		})
		if err != nil {
			b.note("%s run: %v", r.name, err)
		}
		s.times(r.name+" run", v, 0)
	}
	kinds := make([]string, len(b.Isolations))
	for i, isolation := range b.Isolations {
		kinds[i] = fmt.Sprintf("image=%s,isolation=%s,kernel=python", b.Image, isolation)
	}
	p, err := b.startDaemon(ctx, filepath.Join(b.Scratch, "pool"), "--pool="+strings.Join(kinds, ";"))
	if err != nil {
		return err
	}
	defer p.stop()
	c := p.client()
	defer c.Close()
	for _, isolation := range b.Isolations {
		if err := b.poolOf(ctx, c, s, isolation); err != nil {
			return fmt.Errorf("%s: %w", isolation, err)
		}
	}
	s.Note = "Each create finds a sandbox with a Python kernel that was made before; the time to make the next one is not in the figures. " +
		"Floors: a bare runtime that runs `true`, and jupyter_client with a kernel that runs already, in the same sandbox."
	return nil
}

func (b *bench) poolOf(ctx context.Context, c *client.Client, s *Section, isolation string) error {
	command, cell := isolation+": create, first command", isolation+": create, first cell"
	v, err := b.claims(ctx, c, isolation, b.count(30, 5), func(id string) error {
		e, err := c.Exec(ctx, id, client.Command("true"))
		if err != nil {
			return err
		}
		return e.Err()
	})
	if err != nil {
		return err
	}
	s.times(command, v, warmCommand[isolation])
	s.over(command, floorOf[isolation])
	if v, err = b.claims(ctx, c, isolation, b.count(20, 5), func(id string) error {
		e, err := c.RunCode(ctx, id, client.CodeRequest{Code: "1+1"})
		if err != nil {
			return err
		}
		return e.Err()
	}); err != nil {
		return err
	}
	floor := isolation + ": jupyter_client inside"
	id, remove, err := b.box(ctx, isolation)
	if err != nil {
		return err
	}
	defer remove()
	if cells, err := b.insideCells(ctx, id, b.count(100, 20)); err != nil {
		b.note("%s: %v", floor, err)
	} else {
		s.times(floor, cells, 0)
	}
	s.times(cell, v, warmCell)
	s.over(cell, floor)
	return nil
}

// claims times creates and what comes first in each. One that did not get its
// sandbox from the pool is an error: it would be another figure.
func (b *bench) claims(ctx context.Context, c *client.Client, isolation string, n int, first func(id string) error) (v sample, err error) {
	for i := range n + 1 { // the first is not counted
		if err := untilFull(ctx, c); err != nil {
			return v, err
		}
		began := time.Now()
		box, err := c.Create(ctx, client.CreateOptions{Image: b.Image, Isolation: isolation})
		if err != nil {
			return v, err
		}
		err = first(box.ID)
		took := time.Since(began)
		if err == nil {
			err = isWarm(ctx, c, box.ID)
		}
		if derr := c.Destroy(context.WithoutCancel(ctx), box.ID); err == nil {
			err = derr
		}
		if err != nil {
			return v, err
		}
		if i > 0 {
			v.add(took)
		}
	}
	return v, nil
}

func isWarm(ctx context.Context, c *client.Client, id string) error {
	events, _, err := c.Events(ctx, id, 0, 1, "sandbox.created")
	if err != nil {
		return err
	}
	var created struct {
		Start string `json:"start"`
	}
	if len(events) == 0 || json.Unmarshal(events[0].Payload, &created) != nil || created.Start != "warm" {
		return errors.New("a create did not get its sandbox from the pool")
	}
	return nil
}

// untilFull waits until everything is there that is kept ready.
func untilFull(ctx context.Context, c *client.Client) error {
	ctx, cancel := context.WithTimeout(ctx, poolWait)
	defer cancel()
	for {
		text, err := c.Metrics(ctx)
		if err != nil {
			return err
		}
		if missing(text) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the pool does not fill")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// missing is how many sandboxes that are to be kept ready are not.
func missing(metrics string) (n int) {
	for _, p := range telemetry.ReadPools(metrics) {
		n += p.Wanted - p.Ready
	}
	return n
}
