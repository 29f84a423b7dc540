//go:build root

package oci

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/drivertest"
)

// TestSandboxOfVersion1 drives a running sandbox by the handle that version 1
// wrote of it, and by the notes that it left on the host.
func TestSandboxOfVersion1(t *testing.T) {
	for _, w := range walls {
		t.Run(w.runtime, func(t *testing.T) {
			t.Parallel()
			r := start(t, w.runtime, testSpec(t, w.isolation))
			if out, exit := r.exec("root", "echo one > /workspace/a && echo two > /etc/b && echo three > /home/sandbox/c"); exit.GetCode() != 0 {
				t.Fatalf("%v: %s", exit, out)
			}
			h := asVersion1(t, r.h)
			b := r.d.box(r.spec.UID)
			if err := os.WriteFile(b.noteFile(), asVersion1(t, mustRead(t, b.noteFile())), 0o600); err != nil {
				t.Fatal(err)
			}

			r.d = r.m.open(t)
			d := r.d
			status, err := d.Inspect(r.ctx, h)
			if err != nil || status.Phase != driver.PhaseRunning {
				t.Fatalf("Inspect = %+v, %v; want running", status, err)
			}
			if err := d.Adopt(r.ctx, h); err != nil {
				t.Fatalf("Adopt: %v", err)
			}
			check := func(when string) {
				t.Helper()
				out, _, err := drivertest.Exec(r.ctx, d, h, "root", "cat /workspace/a /etc/b /home/sandbox/c; hostname")
				if err != nil || out != "one\ntwo\nthree\nbox\n" {
					t.Errorf("%s: %q, %v", when, out, err)
				}
			}
			check("adopted")
			if err := d.Stop(r.ctx, h, 0); err != nil {
				t.Fatalf("Stop: %v", err)
			}
			if err := d.Start(r.ctx, h); err != nil {
				t.Fatalf("Start: %v", err)
			}
			check("started again")
			if err := d.Destroy(r.ctx, h); err != nil {
				t.Fatalf("Destroy: %v", err)
			}
			if found, err := d.List(r.ctx); err != nil || len(found) > 0 {
				t.Errorf("List = %v, %v; want none", found, err)
			}
		})
	}
}

// asVersion1 says in the words of version 1 what a handle says.
func asVersion1(t *testing.T, h []byte) driver.Handle {
	t.Helper()
	n, err := places{}.parse(h)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(h, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "volumes")
	delete(fields, "image")
	fields["v"], fields["disk"] = 1, filepath.Dir(n.root())
	old, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return old
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
