//go:build root

package oci

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/driver/drivertest"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
)

// BenchmarkSleep measures a sleep, and a wake until a command answers, beside
// what gVisor's own checkpoint with an fsync of what it wrote, and its restore,
// take of the same sandbox.
func BenchmarkSleep(b *testing.B) {
	for _, what := range []struct{ name, script string }{
		{"plain", ""},
		{"python200MB", `setsid python3 -c 'import os, time; x = os.urandom(200 << 20); open("ready", "w"); time.sleep(10000)' </dev/null >/dev/null 2>&1 & until [ -e ready ]; do sleep 0.1; done`},
	} {
		b.Run(what.name, func(b *testing.B) {
			m := newMachine(b, runsc)
			d, spec, ctx := m.open(b), pythonSpec(b), context.Background()
			h, err := d.Create(ctx, spec)
			must := func(err error) {
				b.Helper()
				if err != nil {
					b.Fatal(err)
				}
			}
			must(err)
			b.Cleanup(func() { must(d.Destroy(ctx, h)) })
			must(d.Start(ctx, h))
			run := func(script string) {
				_, _, err := drivertest.Exec(ctx, d, h, "sandbox", script)
				must(err)
			}
			if what.script != "" {
				run(what.script)
			}
			took := make(map[string][]time.Duration)
			measure := func(name string, f func()) {
				began := time.Now()
				f()
				took[name] = append(took[name], time.Since(began))
			}
			for b.Loop() {
				measure("sleep", func() { must(d.Sleep(ctx, h)) })
				measure("wake", func() { must(d.Wake(ctx, h)); run("true") })

				// The same by the runtime's own commands.
				n, err := parseHandle(h)
				must(err)
				r, err := d.held(h)
				must(err)
				box := d.box(n.UID)
				rec, _, err := box.record()
				must(err)
				r.line().Sever()
				must(box.memory().Begin(r.process.program()))
				measure("checkpoint", func() {
					must(d.runsc(ctx, n, r.process, "checkpoint", "--image-path="+box.memory().HalfImage()))
					must(memory.SyncTree(box.memory().HalfImage()))
				})
				must(box.memory().Seal(memory.Content{Secret: rec.Secret}))
				must(d.clear(ctx, n.UID))
				must(box.lay(n, &d.authorities))
				rec = record{Secret: rec.Secret, HostID: d.hostID, Waking: true}
				must(box.setRecord(rec))
				place, err := d.takePlace(n)
				must(err)
				l, err := d.listen(n, rec)
				must(err)
				var p *process
				kept := box.memory()
				measure("restore", func() {
					p, err = d.launch(ctx, n, rec, nil, place, &kept)
					must(err)
				})
				place.leave()
				rec.PID, rec.StartTime = p.pid, p.start
				must(box.setRecord(rec))
				r = hold(p, l)
				d.mu.Lock()
				d.runs[n.UID] = r
				d.mu.Unlock()
				must(d.greet(ctx, r))
				must(d.used(box))
			}
			for name, all := range took {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-ms")
			}
		})
	}
}
