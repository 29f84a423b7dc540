package lifecycle

import (
	"github.com/cubbyhq/cubby/internal/core/environ"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/storage"
)

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
