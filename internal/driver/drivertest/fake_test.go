package drivertest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fakeSpec(t *testing.T) driver.Spec {
	disk := t.TempDir()
	for _, v := range driver.DiskVolumes(disk, "") {
		if err := os.Mkdir(v.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return driver.Spec{
		UID: sandbox.NewUID(), Isolation: sandbox.GVisor, Image: driver.Image{Dir: "/"}, Volumes: driver.DiskVolumes(disk, ""),
		Limits:   sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 1, PIDs: 100, DiskBytes: 1 << 30, OpenFiles: 1024},
		Identity: driver.Identity{ID: "box", Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}},
	}
}

func TestFakeContract(t *testing.T) {
	Run(t, func(t *testing.T) (driver.Driver, Env) {
		f := NewFake(t)
		return f, Env{
			Spec:   fakeSpec,
			Reopen: func(t *testing.T) driver.Driver { f = f.Restart(t); return f },
			Crash: func(t *testing.T, uid sandbox.UID) {
				f.Kill(uid, driver.Death{Cause: driver.DeathSignal, Signal: "SIGKILL"})
			},
			Egress: func(t *testing.T, uid sandbox.UID) string {
				conn, err := net.Dial("tcp", f.EgressAddr(uid))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := conn.Write([]byte("ping")); err != nil {
					t.Fatal(err)
				}
				answer, err := io.ReadAll(conn)
				if err != nil {
					t.Fatal(err)
				}
				return string(answer)
			},
		}
	})
}

func TestFakeFails(t *testing.T) {
	down := errs.E(errs.Unavailable, "down")
	ctx := context.Background()
	spec := fakeSpec(t)

	f := NewFake(t)
	f.Fail = map[string]error{"Create": down}
	if _, err := f.Create(ctx, spec); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Create = %v, want unavailable", err)
	}
	f.SetFail("Create", nil)
	f.FailAfter = map[string]error{"Start": down}
	h, err := f.Create(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Start(ctx, h); !errors.Is(err, errs.Unavailable) {
		t.Errorf("Start = %v, want unavailable", err)
	}
	if status, err := f.Inspect(ctx, h); err != nil || status.Phase != driver.PhaseRunning {
		t.Errorf("Inspect = %+v, %v; want running: the start did its work before it failed", status, err)
	}
}
