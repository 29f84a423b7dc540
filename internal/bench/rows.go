package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/store"
)

// rows measures list, get and exec with few and with many sandboxes in the
// store. The rows of stopped sandboxes are written into a fresh data directory
// through the store itself, before a daemon starts on it.
func (b *bench) rows(ctx context.Context) error {
	if b.Remote != nil {
		b.note("rows: left out, because it needs a daemon of its own")
		return nil
	}
	s := b.report.section("rows", "Latency with many sandboxes in the store")
	isolation := b.Isolations[len(b.Isolations)-1]
	counts := []int{10, 10_000}
	for _, n := range counts {
		if err := b.rowsOf(ctx, s, n, isolation); err != nil {
			return fmt.Errorf("%d rows: %w", n, err)
		}
	}
	for _, what := range []string{"list of 10", "get", "exec, " + isolation} {
		s.over(rowName(counts[1], what), rowName(counts[0], what))
	}
	return nil
}

func rowName(n int, what string) string { return fmt.Sprintf("%s, %d rows", what, n) }

func (b *bench) rowsOf(ctx context.Context, s *Section, n int, isolation string) error {
	dir, err := b.ensureDir(fmt.Sprintf("rows-%d", n))
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ids, err := seed(ctx, dir, n)
	if err != nil {
		return err
	}
	p, err := b.startDaemon(ctx, dir, "--max-sandboxes=20000")
	if err != nil {
		return err
	}
	defer p.stop()
	c := p.client()
	defer c.Close()

	times := b.count(300, 50)
	v, err := repeat(ctx, times, func() error {
		boxes, _, err := c.ListPage(ctx, client.ListOptions{PageSize: 10}, "")
		if err == nil && len(boxes) < 10 {
			err = fmt.Errorf("%d sandboxes listed", len(boxes))
		}
		return err
	})
	if err != nil {
		return err
	}
	s.times(rowName(n, "list of 10"), v, 0)
	v, err = repeat(ctx, times, func() error {
		_, err := c.Get(ctx, ids[rand.IntN(len(ids))])
		return err
	})
	if err != nil {
		return err
	}
	s.times(rowName(n, "get"), v, 0)

	box, err := c.Create(ctx, client.CreateOptions{Image: b.Image, Isolation: isolation})
	if err != nil {
		return err
	}
	v, err = repeat(ctx, times, func() error {
		_, err := c.Exec(ctx, box.ID, client.Command("true"))
		return err
	})
	if derr := c.Destroy(context.WithoutCancel(ctx), box.ID); err == nil {
		err = derr
	}
	s.times(rowName(n, "exec, "+isolation), v, 0)
	return err
}

// seed writes rows of stopped sandboxes.
func seed(ctx context.Context, dir string, n int) (ids []string, err error) {
	db, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, "cubby.db"), Now: time.Now})
	if err != nil {
		return nil, err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	// Moves are on the disk when they return, and share their syncs.
	ids = make([]string, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(128)
	for i := range n {
		group.Go(func() error {
			box := seedBox()
			ids[i] = string(box.ID)
			if err := db.CreateSandbox(ctx, box); err != nil {
				return err
			}
			for _, to := range []sandbox.State{sandbox.Running, sandbox.Stopped} {
				if _, err := db.Move(ctx, box.UID, to, store.Change{Why: sandbox.Why{Cause: sandbox.CauseRequest}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return ids, group.Wait()
}

func seedBox() sandbox.Sandbox {
	return sandbox.Sandbox{UID: sandbox.NewUID(), ID: sandbox.NewID(), Spec: sandbox.Spec{
		Image: "base", Isolation: sandbox.Container, User: sandbox.UserSandbox, IdlePolicy: sandbox.IdleAlwaysOn,
		Limits:     sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 2, PIDs: 512, DiskBytes: 4 << 30, OpenFiles: 1 << 16},
		Network:    sandbox.Policy{Mode: sandbox.NetworkAllowlist},
		Visibility: sandbox.Private, Labels: map[string]string{"team": "red"},
	}}
}
