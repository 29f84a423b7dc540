package pool

import (
	"cmp"

	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Serves reports whether a sandbox can be one that was made before anybody asked for it.
func Serves(b sandbox.Sandbox) bool { return !b.Spec.SharedFiles && len(b.Spec.Dependencies) == 0 }

// Want is what a create asks for, as far as it decides whether a member will do.
// The environment does not: an agent that gets an identity brings its kernels up to
// date, or starts them again.
type Want struct {
	Digest    string // of the image
	Image     string // by name
	Isolation sandbox.Isolation
	Limits    sandbox.Limits
	User      string
	Language  string // of the code that will probably run
	Usual     bool   // one like it may be kept ready, see [Pool.Follow]
}

// WantOf is what a sandbox asks for. It is usual when it has no larger disk than others:
// who asks for that shall not have the host make two.
func WantOf(b sandbox.Sandbox, img image.Image, others sandbox.Limits) Want {
	return Want{
		Digest: img.Digest, Image: b.Spec.Image, Isolation: b.Spec.Isolation, Limits: b.Spec.Limits, User: b.Spec.User,
		Language: cmp.Or(b.Spec.Runtime, sandbox.RuntimePython),
		Usual:    Serves(b) && b.Spec.Limits.DiskBytes <= others.DiskBytes,
	}
}

// rank says how well a member fits: 0 not at all; best is one whose kernel is for the
// wanted language, then one without a kernel.
func (w Want) rank(m *Member) int {
	k := m.of
	switch {
	case w.Digest != m.Digest || w.Isolation != k.Isolation || w.Limits != k.Limits || w.User != k.User:
		return 0
	case k.Kernel == w.Language:
		return 3
	case k.Kernel == "":
		return 2
	}
	return 1
}
