package core

import (
	"context"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/core/history"
	"github.com/cubbyhq/cubby/internal/core/imagebuild"
	"github.com/cubbyhq/cubby/internal/core/lifecycle"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/core/preview"
	"github.com/cubbyhq/cubby/internal/core/program"
	"github.com/cubbyhq/cubby/internal/core/secrets"
	"github.com/cubbyhq/cubby/internal/core/services"
	"github.com/cubbyhq/cubby/internal/core/snapshot"
	"github.com/cubbyhq/cubby/internal/core/tasks"
	"github.com/cubbyhq/cubby/internal/core/tenants"
	"github.com/cubbyhq/cubby/internal/core/threads"
	"github.com/cubbyhq/cubby/internal/core/transfer"
	"github.com/cubbyhq/cubby/internal/image"
)

// Each handle is the methods of one noun. They resolve ids and tenants by
// themselves.

// Sandboxes is what sandboxes there are, and whether they run.
func (s *Service) Sandboxes() *lifecycle.Sandboxes { return s.sandboxes }

// Snapshots is what was kept of sandboxes, and how others begin from it.
func (s *Service) Snapshots() *snapshot.Snapshots { return s.snapshots }

// Threads is the conversations that sandboxes belong to.
func (s *Service) Threads() *threads.Threads { return s.sandboxes.Threads() }

// Tenants is the names that sandboxes belong to.
func (s *Service) Tenants() *tenants.Tenants { return s.sandboxes.Tenants() }

// Secrets is what the operator sets for the tasks of tenants.
func (s *Service) Secrets() *secrets.Secrets {
	return secrets.New(s.cfg.Store, s.gate, s.cfg.Log)
}

// Execs is the commands of sandboxes.
func (s *Service) Execs() *live.Execs { return s.live.Execs() }

// Terminals is the terminals of sandboxes.
func (s *Service) Terminals() *live.Terminals { return s.live.Terminals() }

// Egress is the way from sandboxes to other hosts.
func (s *Service) Egress() *live.Egress { return s.live.Egress() }

// Ports is the TCP ports of sandboxes.
func (s *Service) Ports() *live.Ports { return s.live.Ports() }

// Previews is the ports of sandboxes, as they are seen from outside.
func (s *Service) Previews() *preview.Previews { return s.previews }

// Services is the services of sandboxes.
func (s *Service) Services() *services.Services { return s.services }

// Tasks is what coding agents are asked to do in sandboxes.
func (s *Service) Tasks() *tasks.Tasks { return s.tasks }

// Sessions is the session shells of sandboxes.
func (s *Service) Sessions() *Sessions { return &Sessions{s} }

// Code is code that is run in sandboxes.
func (s *Service) Code() *cell.Code { return s.code }

// Kernels is the kernels of sandboxes.
func (s *Service) Kernels() *cell.Kernels { return s.kernels }

// Git is git in sandboxes.
func (s *Service) Git() *program.Git { return s.programs.git }

// Packages is the packages of sandboxes.
func (s *Service) Packages() *program.Packages { return s.programs.packages }

// Files is the files of sandboxes.
func (s *Service) Files() *transfer.Files { return s.files }

// Exports is the paths that sandboxes have given out.
func (s *Service) Exports() *transfer.Exports { return s.exports }

// Imports is what comes into sandboxes from elsewhere.
func (s *Service) Imports() *transfer.Imports { return s.imports }

// Archives is the files of destroyed sandboxes in the archive storage.
func (s *Service) Archives() *transfer.Archives { return s.archives }

// Events is the histories of sandboxes.
func (s *Service) Events() *history.Events { return s.events }

// Builds makes and removes images.
func (s *Service) Builds() *imagebuild.Builds { return s.programs.builds }

// Images lists the images that sandboxes can be created from.
func (s *Service) Images(ctx context.Context) ([]image.Image, error) { return s.cfg.Images.List(ctx) }
