package kernels

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/guestd/proc"
	"github.com/cubbyhq/cubby/internal/kernel"
)

// Bounds of what is imported in a spare kernel.
const (
	maxModules    = 100
	maxModuleName = 200
)

// Prepare starts a kernel that has no name and is in no list until somebody asks
// for one of the same kernelspec, user and directory, and without variables of
// its own: that is this one then. It replaces the spare kernel of before.
func (s *Set) Prepare(ctx context.Context, asked *guestv1.KernelSpec, modules []string) error {
	switch {
	case asked.GetLanguage() == "":
		return errs.E(errs.Invalid, "a kernel needs a language")
	case asked.GetName() != "" || len(asked.GetEnv()) > 0:
		return errs.E(errs.Invalid, "a spare kernel has neither a name nor variables")
	case len(modules) > maxModules:
		return errs.E(errs.Invalid, "more than %d modules", maxModules)
	}
	k := newLiveKernel(s, "", asked)
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return errs.E(errs.WrongState, "the sandbox is shutting down")
	}
	s.running.Go(k.run)
	s.mu.Unlock()
	if err := k.again(ctx); err != nil {
		k.end(proc.Cause{Text: "the kernel did not come up"})
		return startError(err)
	}
	if err := k.preload(ctx, modules); err != nil {
		k.end(proc.Cause{Text: "its modules cannot be imported"})
		return err
	}
	s.mu.Lock()
	old := s.spare
	late := s.ending
	if !late {
		s.spare = k
	}
	s.mu.Unlock()
	switch {
	case late:
		k.end(proc.Cause{Text: "the sandbox is shutting down"})
		return errs.E(errs.WrongState, "the sandbox is shutting down")
	case old != nil:
		old.end(proc.Cause{Text: "another kernel took its place"})
	}
	return nil
}

// preload imports modules in a kernel that nobody else has yet, and from then on in
// each process that takes the place of this one before somebody uses it.
func (k *liveKernel) preload(ctx context.Context, modules []string) error {
	k.mu.Lock()
	process, kind := k.process, k.kind
	k.modules = modules
	k.mu.Unlock()
	if process == nil {
		return errs.E(errs.Unavailable, "the kernel ended as soon as it was up")
	}
	return process.load(ctx, kind, modules)
}

// load imports modules.
func (p *kernelProcess) load(ctx context.Context, kind kernelKind, modules []string) error {
	for _, module := range modules {
		code, err := importOf(kind.language, module)
		if err != nil {
			return err
		}
		failed := ""
		reply, err := p.engine.Execute(ctx, kernel.Cell{Code: code, Silent: true}, func(o kernel.Output) {
			if o.Error != nil {
				failed = o.Error.Name + ": " + o.Error.Value
			}
		})
		if err != nil {
			return errs.E(errs.Unavailable, "the kernel ended while it imported %s", module).Because(err)
		}
		if failed != "" || reply.Status == "error" {
			return errs.E(errs.Invalid, "the kernel cannot import %s: %.500s", module, failed)
		}
	}
	return nil
}

// importOf is code that loads a module and gives it no name.
func importOf(language, module string) (string, error) {
	if len(module) > maxModuleName || module == "" || strings.ContainsFunc(module, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"'`\\", r) }) {
		return "", errs.E(errs.Invalid, "%.100q is no name of a module", module)
	}
	quoted, err := json.Marshal(module)
	if err != nil {
		return "", err
	}
	switch canonicalLanguage(language) {
	case "python":
		return fmt.Sprintf("__import__(%s)", quoted), nil
	case nodeKernel:
		return fmt.Sprintf("void require(%s)", quoted), nil
	case "r":
		return fmt.Sprintf("invisible(loadNamespace(%s))", quoted), nil
	}
	return "", errs.E(errs.Invalid, "modules of %s cannot be imported before", language)
}

// takeSpare gives the spare kernel to who asks for one like it; nil when there is
// none. s.mu is held.
func (s *Set) takeSpare(name string, asked *guestv1.KernelSpec) *liveKernel {
	k := s.spare
	if k == nil || len(asked.GetEnv()) > 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ending != nil || k.process != nil && k.process.hasEnded() || k.process == nil && k.came {
		return nil // it has ended; one that is starting again will be there
	}
	if cwd(asked) != cwd(k.asked) || !s.sameUser(asked, k.asked) {
		return nil
	}
	// What a user has installed since decides which kernel a name means.
	kind, err := s.kindFor(asked)
	if err != nil || kind.spec != k.kind.spec || !reflect.DeepEqual(kind.jupyter, k.kind.jupyter) {
		return nil
	}
	s.spare = nil
	k.name, k.asked, k.created = name, asked, s.cfg.Now()
	return k
}

func cwd(asked *guestv1.KernelSpec) string {
	if dir := asked.GetCwd(); dir != "" {
		return dir
	}
	return "/workspace"
}

func (s *Set) sameUser(a, b *guestv1.KernelSpec) bool {
	if a.GetUser() == b.GetUser() {
		return true
	}
	of, err := s.procs.Account(a.GetUser())
	if err != nil {
		return false
	}
	is, err := s.procs.Account(b.GetUser())
	return err == nil && reflect.DeepEqual(of, is)
}

// isReady reports whether the kernel answers already.
func (k *liveKernel) isReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.process != nil
}

// label is the kernel's name for people; the spare one has none yet.
func (k *liveKernel) label() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.name == "" {
		return "(not in use)"
	}
	return k.name
}
