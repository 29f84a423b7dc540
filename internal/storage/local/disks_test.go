package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/filetree/filetreetest"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// plainDisks is what a host without loop devices gets.
func plainDisks(t *testing.T, cfg Config) *Disks {
	t.Helper()
	cfg.Dir, cfg.Plain = filepath.Join(t.TempDir(), "disks"), true
	if cfg.Reserve == 0 {
		cfg.Reserve = 1
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestPlainDirectories(t *testing.T) {
	d := plainDisks(t, Config{})
	uid := sandbox.NewUID()
	disk, err := d.createAlone(t.Context(), uid, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if disk.Quota || disk.Bytes != 64<<20 || disk.UID != uid {
		t.Errorf("Create = %+v, want 64 MiB without quota", disk)
	}
	if got, err := d.mountAlone(t.Context(), uid); err != nil || got != disk {
		t.Errorf("Mount = %+v, %v, want %+v", got, err, disk)
	}
	if uids, err := d.List(); err != nil || len(uids) != 1 || uids[0] != uid {
		t.Errorf("List = %v, %v, want %v", uids, err, uid)
	}
	if _, err := d.createAlone(t.Context(), uid, 64<<20); !errors.Is(err, errs.Conflict) {
		t.Errorf("second Create = %v, want conflict", err)
	}
	if err := os.WriteFile(filepath.Join(disk.Dir, "workspace", "f"), make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.unmountAlone(t.Context(), uid); err != nil {
		t.Errorf("Unmount = %v", err)
	}
	if u, err := d.Usage(t.Context(), uid); err != nil || u.Bytes != 64<<20 || u.Used < 1<<20 {
		t.Errorf("Usage = %+v, %v, want 64 MiB of which 1 is used", u, err)
	}
	if freed, err := d.Remove(t.Context(), uid); err != nil || freed < 1<<20 {
		t.Errorf("Remove = %d, %v, want at least 1 MiB", freed, err)
	}
	if freed, err := d.Remove(t.Context(), uid); err != nil || freed != 0 {
		t.Errorf("second Remove = %d, %v, want 0, nil", freed, err)
	}
	if left, _ := os.ReadDir(d.cfg.Dir); len(left) != 1 {
		t.Errorf("left: %v, want only the pool", left)
	}
	for name, err := range map[string]error{
		"Mount": func() error { _, err := d.mountAlone(t.Context(), uid); return err }(),
		"Usage": func() error { _, err := d.Usage(t.Context(), uid); return err }(),
		"Tree":  func() error { _, err := d.filesAlone(t.Context(), uid); return err }(),
	} {
		if !errors.Is(err, errs.NotFound) {
			t.Errorf("%s of a removed disk = %v, want not found", name, err)
		}
	}
}

func TestTreeOnAPlainDirectory(t *testing.T) {
	open := func(t *testing.T) filetreetest.Env {
		d := plainDisks(t, Config{})
		disk, err := d.createAlone(t.Context(), sandbox.NewUID(), 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := d.filesAlone(t.Context(), disk.UID)
		if err != nil {
			t.Fatal(err)
		}
		return filetreetest.Env{
			Files:     tree,
			Workspace: filepath.Join(disk.Dir, "workspace"),
			Home:      filepath.Join(disk.Dir, "home"),
			Confined:  true,
		}
	}
	filetreetest.Run(t, open)
}

func TestCreateRefusals(t *testing.T) {
	for _, tt := range []struct {
		name  string
		cfg   Config
		uid   sandbox.UID
		bytes int64
		kind  errs.Kind
	}{
		{"a uid that climbs", Config{}, "../../../../etc/cron.d/x123", 64 << 20, errs.Invalid},
		{"an upper-case uid", Config{}, sandbox.UID(strings.ToUpper(string(sandbox.NewUID()))), 64 << 20, errs.Invalid},
		{"no size", Config{}, sandbox.NewUID(), 0, errs.Invalid},
		{"a negative size", Config{}, sandbox.NewUID(), -1, errs.Invalid},
		{"a host without room", Config{Reserve: 1 << 60}, sandbox.NewUID(), 64 << 20, errs.Exhausted},
		{"more than may be promised", Config{Overcommit: 0.001}, sandbox.NewUID(), 1 << 50, errs.Exhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := plainDisks(t, tt.cfg)
			if _, err := d.createAlone(t.Context(), tt.uid, tt.bytes); !errors.Is(err, tt.kind) {
				t.Errorf("Create = %v, want %v", err, tt.kind)
			}
			if uids, err := d.List(); err != nil || len(uids) != 0 {
				t.Errorf("List = %v, %v, want none", uids, err)
			}
			if d.promised != 0 {
				t.Errorf("%d bytes stay promised, want 0", d.promised)
			}
		})
	}
}

func TestPlainTreeStopsBeforeTheHostIsFull(t *testing.T) {
	d := plainDisks(t, Config{})
	disk, err := d.createAlone(t.Context(), sandbox.NewUID(), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := d.filesAlone(t.Context(), disk.UID)
	if err != nil {
		t.Fatal(err)
	}
	d.cfg.Reserve = 1 << 60
	if _, err := tree.Write(t.Context(), "f", strings.NewReader("x"), sandbox.FileWrite{}); !errors.Is(err, errs.Exhausted) {
		t.Errorf("Write = %v, want exhausted", err)
	}
	if err := d.Admit(); !errors.Is(err, errs.Exhausted) || errs.Public(err).RetryAfter == 0 {
		t.Errorf("Admit = %v, want exhausted with a time to try again", err)
	}
	if err := tree.Remove(t.Context(), "f", true); !errors.Is(err, errs.NotFound) {
		t.Errorf("Remove = %v, want not found: removing is how space comes back", err)
	}
}

func TestRunEnds(t *testing.T) {
	defer goleak.VerifyNone(t)
	d := plainDisks(t, Config{Pool: 2})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- d.Run(ctx) }()
	cancel()
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
}
