// Package bench measures cubby through its public API, and beside it, in the
// same minutes on the same machine, the floor: the bare OCI runtimes and
// Docker running the same root filesystem. The report puts each figure next to
// what it stands on, with the ratio, and next to the goal.
//
// It measures and judges nothing else: a goal that is missed is shown as
// missed, not reported as an error. What could not be measured is in the notes
// with the reason. Everything it makes (a daemon, sandboxes, containers) it
// removes again.
package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
)

// Config says what to measure.
type Config struct {
	// Program is the cubby binary that is started as daemon.
	Program string
	// ImageDir and Image name what sandboxes start from.
	ImageDir, Image string
	// Scratch is a directory for the daemon's data and bundles. It is emptied
	// by nobody but its owner.
	Scratch string
	// Remote is a running daemon to measure instead of one of our own. What
	// needs our own (memory of the daemon, rows) is then left out.
	Remote *client.Client

	Isolations []string // of "gvisor" and "container"
	Sections   []string // of [Sections]; empty: all
	// Quick measures with few repetitions, in two and a half minutes.
	Quick bool
	// N is the number of creates; 0 chooses. Other counts follow it.
	N int

	Progress io.Writer // a line per step
	Now      func() time.Time
}

// Sections names what can be measured, in the order in which it is.
func Sections() []string {
	return []string{"create", "exec", "burst", "transfer", "stream", "egress", "preview", "code", "sleep", "fork", "pool", "agent", "neighbours", "memory", "rows"}
}

// bench is one run.
type bench struct {
	Config
	image  image.Image
	client *client.Client
	daemon *process // nil with a remote one
	docker *docker  // nil when no engine answers
	// environ is what daemons that are started have in their environment beside ours.
	environ []string
	report  *Report
}

// Run measures. The report is complete as far as it goes also when an error
// ended it.
func Run(ctx context.Context, c Config) (*Report, error) {
	b := &bench{Config: c}
	if b.Now == nil {
		b.Now = time.Now
	}
	if b.Progress == nil {
		b.Progress = io.Discard
	}
	if len(b.Isolations) == 0 {
		b.Isolations = []string{"gvisor", "container"}
	}
	for _, s := range b.Sections {
		if !slices.Contains(Sections(), s) {
			return nil, errs.E(errs.Invalid, "no section %q", s).Hint("there are: %s", strings.Join(Sections(), ", "))
		}
	}
	began := b.Now()
	b.report = &Report{Machine: machine(ctx), Began: began.UTC(), Quick: c.Quick}
	err := b.run(ctx)
	b.report.Seconds = b.Now().Sub(began).Seconds()
	return b.report, err
}

func (b *bench) run(ctx context.Context) error {
	store, err := image.Open(b.ImageDir, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if b.image, err = store.Resolve(ctx, b.Image); err != nil {
		return err
	}
	b.report.Image = fmt.Sprintf("%s (%.0f MB)", b.Image, float64(b.image.Size)/1e6)

	if b.Remote != nil {
		b.client = b.Remote
	} else {
		previews, err := freeAddr(ctx)
		if err != nil {
			return err
		}
		if b.daemon, err = b.startDaemon(ctx, filepath.Join(b.Scratch, "data"), "--egress-allow="+ownHosts(), "--preview-listen="+previews); err != nil {
			return err
		}
		defer b.daemon.stop()
		b.client = b.daemon.client()
		defer b.client.Close()
	}
	steps := map[string]func(context.Context) error{
		"create": b.create, "exec": b.exec, "burst": b.burst, "transfer": b.transfer,
		"stream": b.stream, "egress": b.egress, "preview": b.preview, "code": b.code, "sleep": b.sleep, "fork": b.fork, "pool": b.pool, "agent": b.agent, "neighbours": b.neighbours, "memory": b.memory, "rows": b.rows,
	}
	if b.wants("create") || b.wants("exec") {
		if b.docker = b.findDocker(ctx); b.docker != nil {
			defer b.docker.close(ctx)
		}
	}
	for _, name := range Sections() {
		if !b.wants(name) {
			continue
		}
		began := time.Now()
		fmt.Fprintf(b.Progress, "%-10s", name)
		err := steps[name](ctx)
		fmt.Fprintf(b.Progress, "%5.1f s\n", time.Since(began).Seconds())
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.note("%s: %v", name, err)
		}
	}
	return nil
}

func (b *bench) wants(section string) bool {
	return len(b.Sections) == 0 || slices.Contains(b.Sections, section)
}

// count scales a number of repetitions.
func (b *bench) count(full, quick int) int {
	n := full
	if b.Quick {
		n = quick
	}
	if b.N > 0 {
		n = max(1, n*b.N/b.creates())
	}
	return n
}

func (b *bench) creates() int {
	if b.Quick {
		return 5
	}
	return 30
}

func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, fmt.Sprintf(format, args...))
}

// box creates a sandbox for a measurement. remove destroys it.
func (b *bench) box(ctx context.Context, isolation string) (id string, remove func(), err error) {
	return b.boxOf(ctx, isolation, "")
}

// boxOf is box with another image; "" is that of the run.
func (b *bench) boxOf(ctx context.Context, isolation, image string) (id string, remove func(), err error) {
	box, err := b.client.Create(ctx, client.CreateOptions{
		Image: cmp.Or(image, b.Image), Isolation: isolation, Labels: map[string]string{"cubby.bench": "true"},
	})
	if err != nil {
		return "", nil, fmt.Errorf("create %s: %w", isolation, err)
	}
	return box.ID, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		if err := b.client.Destroy(ctx, box.ID); err != nil && !errors.Is(err, client.NotFound) {
			b.note("destroy: %v", err)
		}
	}, nil
}

// run1 runs `true` and wants it to succeed.
func (b *bench) run1(ctx context.Context, id string) error {
	e, err := b.client.Exec(ctx, id, client.Command("true"))
	if err != nil {
		return err
	}
	return e.Err()
}

// timed measures one call.
func timed(fn func() error) (time.Duration, error) {
	t := time.Now()
	err := fn()
	return time.Since(t), err
}

// ensureDir makes a directory below the scratch.
func (b *bench) ensureDir(elems ...string) (string, error) {
	dir := filepath.Join(append([]string{b.Scratch}, elems...)...)
	return dir, os.MkdirAll(dir, 0o755)
}
