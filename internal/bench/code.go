package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/image"
)

// cellGoal is the goal of a warm cell, in ms.
const cellGoal = 3

// floorOfCells asks a kernel of its own for the same cell, from within the
// sandbox, as any client of Jupyter does, and prints the times in seconds.
const floorOfCells = `
import json, sys, time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
times = []
for _ in range(int(sys.argv[1])):
    begun = time.perf_counter()
    client.execute_interactive("1", output_hook=lambda message: None, timeout=60)
    times.append(time.perf_counter() - begun)
client.stop_channels()
manager.shutdown_kernel(now=True)
print(json.dumps(times))
`

// kernelsOf are the languages whose kernels are measured, and the images that
// have them.
var kernelsOf = []struct{ language, image string }{{"python", ""}, {"node", ""}, {"r", "r"}}

// code measures cells and kernels: a warm cell beside what it takes to ask the
// kernel inside, the start of a kernel, and what it costs.
func (b *bench) code(ctx context.Context) error {
	s := b.report.section("code", "Cells and kernels")
	for _, isolation := range b.Isolations {
		if err := b.warmCells(ctx, s, isolation); err != nil {
			return fmt.Errorf("%s: %w", isolation, err)
		}
	}
	for _, k := range kernelsOf {
		if k.image != "" && !b.hasImage(ctx, k.image) {
			b.note("no kernels of %s: there is no image %s", k.language, k.image)
			continue
		}
		for _, isolation := range b.Isolations {
			if err := b.kernels(ctx, s, isolation, k.language, k.image); err != nil {
				return fmt.Errorf("%s, %s: %w", isolation, k.language, err)
			}
		}
	}
	s.Note = "A cell is `1` in a Python kernel that has run before; the floor is jupyter_client in the same sandbox with a kernel of its own. " +
		"A start ends when the kernel takes cells. The memory of a kernel is what the sandbox's processes take more (PSS) with it."
	return nil
}

func (b *bench) hasImage(ctx context.Context, name string) bool {
	store, err := image.Open(b.ImageDir, slog.New(slog.DiscardHandler))
	if err != nil {
		return false
	}
	_, err = store.Resolve(ctx, name)
	return err == nil
}

func (b *bench) warmCells(ctx context.Context, s *Section, isolation string) error {
	id, remove, err := b.box(ctx, isolation)
	if err != nil {
		return err
	}
	defer remove()
	floor := isolation + ": jupyter_client inside"
	if v, err := b.insideCells(ctx, id, b.count(200, 50)); err != nil {
		b.note("%s: %v", floor, err)
	} else {
		s.times(floor, v, 0)
	}
	v, err := repeat(ctx, b.count(500, 100), func() error {
		e, err := b.client.RunCode(ctx, id, client.CodeRequest{Code: "1"})
		if err != nil {
			return err
		}
		return e.Err()
	})
	if err != nil {
		return err
	}
	s.times(isolation+": cell", v, cellGoal)
	s.over(isolation+": cell", floor)
	return nil
}

func (b *bench) insideCells(ctx context.Context, id string, n int) (sample, error) {
	const warm = 20
	e, err := b.client.Exec(ctx, id, client.Command("python3", "-c", floorOfCells, fmt.Sprint(n+warm)))
	if err == nil {
		err = e.Err()
	}
	if err != nil {
		return nil, err
	}
	lines := bytes.Split(bytes.TrimSpace([]byte(e.Stdout)), []byte("\n"))
	var times []float64
	if err := json.Unmarshal(lines[len(lines)-1], &times); err != nil || len(times) != n+warm {
		return nil, fmt.Errorf("%d times were printed: %w", len(times), err)
	}
	var v sample
	for _, t := range times[warm:] {
		v.add(time.Duration(t * float64(time.Second)))
	}
	return v, nil
}

// kernels measures starts of kernels of a language, and then the memory of
// some that stay.
func (b *bench) kernels(ctx context.Context, s *Section, isolation, language, image string) error {
	before := pids()
	id, remove, err := b.boxOf(ctx, isolation, image)
	if err != nil {
		return err
	}
	defer remove()
	start := func(i int) error {
		_, err := b.client.CreateKernel(ctx, id, client.KernelOptions{Name: fmt.Sprintf("k%d", i), Language: language})
		return err
	}
	i := 0
	v, err := repeat(ctx, b.count(10, 3), func() error { i++; return start(i) })
	if err != nil {
		return err
	}
	s.times(fmt.Sprintf("%s: start of a kernel, %s", isolation, language), v, 0)
	for ; i > 0; i-- {
		if err := b.client.DeleteKernel(ctx, id, fmt.Sprintf("k%d", i)); err != nil {
			return err
		}
	}

	const n = 3
	without, err := b.settledPSS(ctx, before)
	if err != nil {
		return err
	}
	for i := range n {
		if err := start(i); err != nil {
			return err
		}
		if _, err := b.client.RunCode(ctx, id, client.CodeRequest{Kernel: fmt.Sprintf("k%d", i), Code: "1"}); err != nil {
			return err
		}
	}
	with, err := b.settledPSS(ctx, before)
	if err != nil {
		return err
	}
	s.value(fmt.Sprintf("%s: PSS of a kernel, %s", isolation, language), "MiB", float64(with-without)/n/(1<<20), n, 0, false)
	return nil
}

// settledPSS is the memory of our processes that were not there before, once
// start-up work has ended and freed pages have gone back.
func (b *bench) settledPSS(ctx context.Context, before map[int]bool) (int64, error) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	pss, _, err := b.newProcesses(before)
	return pss, err
}
