package doctor

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
)

func (d *doctor) openImages() (*image.Store, error) {
	return image.Open(d.Config.Images(), slog.New(slog.DiscardHandler))
}

// boot starts a whole daemon on a scratch directory and lets it run a command
// in a sandbox of each kind: what works here works for users.
func (d *doctor) boot(ctx context.Context) {
	if os.Geteuid() != 0 {
		d.warn("boot", "left out: it needs root", "sudo cubby doctor")
		return
	}
	scratch, err := os.MkdirTemp("", "cubby-doctor-")
	if err != nil {
		d.fail("boot", err.Error(), "make room in "+os.TempDir())
		return
	}
	defer os.RemoveAll(scratch)

	imageDir, name, argv, err := d.bootImage(ctx, scratch)
	if err != nil {
		d.fail("boot image", err.Error(), errs.Public(err).Hint)
		return
	}
	cfg, err := config.Load([]string{
		"--listen=127.0.0.1:0", "--data-dir=" + filepath.Join(scratch, "data"), "--image-dir=" + imageDir,
		"--log-level=error", "--disk-pool=0", "--sentry-pool=0", "--container-pool=0", "--pool=off",
	}, nil)
	if err != nil {
		d.fail("boot", err.Error(), "")
		return
	}
	// A host that is too full for the defaults may not be for its operator.
	cfg.DiskReserve, cfg.MemoryReserve, cfg.MinFreeMemory = d.Config.DiskReserve, d.Config.MemoryReserve, d.Config.MinFreeMemory
	dm, err := daemon.New(ctx, cfg)
	if err != nil {
		d.fail("boot", "no daemon: "+err.Error(), errs.Public(err).Hint)
		return
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- dm.Run(running) }()
	c := client.New("http://" + dm.Addr().String())
	for _, isolation := range []string{"gvisor", "container"} {
		d.bootOne(ctx, c, isolation, name, argv)
	}
	c.Close()
	stop()
	if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
		d.warn("shutdown", err.Error(), "")
	}
}

func (d *doctor) bootOne(ctx context.Context, c *client.Client, isolation, image string, argv []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	broke := func(err error) {
		fix := ""
		var e *client.Error
		if errors.As(err, &e) {
			fix = e.Hint
		}
		d.fail(isolation, err.Error(), fix)
	}
	began := time.Now()
	box, err := c.Create(ctx, client.CreateOptions{Image: image, Isolation: isolation})
	if err != nil {
		broke(err)
		return
	}
	defer func() {
		if err := c.Destroy(context.WithoutCancel(ctx), box.ID); err != nil {
			d.warn(isolation, "destroy: "+err.Error(), "")
		}
	}()
	created := time.Since(began)
	e, err := c.Exec(ctx, box.ID, client.ExecOptions{Argv: argv})
	switch {
	case err != nil:
		broke(err)
	case e.Err() != nil:
		d.fail(isolation, e.Err().Error(), "")
	default:
		line, _, _ := strings.Cut(e.Stdout, "\n")
		d.good(isolation, "up in %d ms, first command after %d ms: %s", created.Milliseconds(), time.Since(began).Milliseconds(), line)
	}
	if isolation == "container" && argv[0] == "uname" {
		d.userNamespace(ctx, c, box.ID)
	}
}

// userNamespace tells when root inside a container is root of the host too.
func (d *doctor) userNamespace(ctx context.Context, c *client.Client, id string) {
	e, err := c.Exec(ctx, id, client.Command("cat", "/proc/self/uid_map"))
	if err != nil || e.Err() != nil {
		d.warn("user namespace", "could not be looked at", "")
		return
	}
	if hostIDs(e.Stdout) {
		d.warn("user namespace", "containers run without one: root inside is root of the host, held by capabilities and seccomp alone",
			"use gvisor, or put the data directory and the images on a file system that can be id-mapped, such as ext4, xfs or btrfs")
		return
	}
	d.good("user namespace", "ids of containers are none of the host's")
}

// hostIDs reports whether a uid_map gives id 0 inside to id 0 outside.
func hostIDs(uidMap string) bool {
	for line := range strings.Lines(uidMap) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "0" && f[1] == "0" {
			return true
		}
	}
	return false
}

// bootImage chooses what to boot: base, else any image, else a scratch one
// that holds nothing but this program.
func (d *doctor) bootImage(ctx context.Context, scratch string) (dir, name string, argv []string, err error) {
	uname := []string{"uname", "-sr"}
	if _, err := os.Stat(d.Config.Images()); err == nil {
		if store, err := d.openImages(); err == nil {
			if _, err := store.Resolve(ctx, "base"); err == nil {
				return d.Config.Images(), "base", uname, nil
			}
		}
	}
	dir = filepath.Join(scratch, "images")
	store, err := image.Open(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", "", nil, err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return "", "", nil, err
	}
	archive := selfArchive(program)
	if _, err = store.Import(ctx, archive, int64(archive.Len()), "doctor", "doctor", nil); err != nil {
		return "", "", nil, err
	}
	return dir, "doctor", []string{"/bin/cubby", "version"}, nil
}

// selfArchive is a root filesystem with one static program in it.
func selfArchive(program []byte) *bytes.Buffer {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	for _, dir := range []string{"bin/", "etc/", "tmp/"} {
		_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}) // a buffer takes everything
	}
	_ = tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/cubby", Mode: 0o755, Size: int64(len(program))})
	_, _ = io.Copy(tw, bytes.NewReader(program))
	_ = tw.Close()
	return &buf
}
