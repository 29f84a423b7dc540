package lifecycle

import (
	"github.com/cubbyhq/cubby/internal/core/environ"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

// DiskBytes is the size of a sandbox's disk: the journal of its execs counts
// towards its disk limit, but takes at most an eighth of a small one.
func DiskBytes(l sandbox.Limits, journalBytes int64) int64 {
	return max(l.DiskBytes-min(journalBytes, l.DiskBytes/8), storage.MinBytes)
}

// limitOfDisk is the disk limit that [DiskBytes] makes a size from.
func limitOfDisk(size, journalBytes int64) int64 {
	if limit := size + journalBytes; limit/8 >= journalBytes {
		return limit
	}
	return size + size/7
}

func (s *acts) driverSpec(b sandbox.Sandbox, img image.Image, disks storage.Mounts) driver.Spec {
	return driver.Spec{
		UID: b.UID, Isolation: b.Spec.Isolation, Limits: b.Spec.Limits, Authorities: s.cfg.Settings.Authorities,
		Image: driver.Image{Digest: img.Digest, Dir: img.Dir}, Volumes: driver.DiskVolumes(disks.Own.Dir, disks.Shared.Dir),
		Identity: s.identity(b, img),
	}
}

func (s *acts) identity(b sandbox.Sandbox, img image.Image) driver.Identity {
	return driver.Identity{ID: string(b.ID), Env: environ.Of(img, b.Spec, s.cfg.Settings.Authorities != "", s.cfg.Packages.Config.Indexes.Env())}
}
