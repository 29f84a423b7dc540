package pool

import (
	"context"
	"slices"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// following is the kind that comes after those of the configuration: containers like
// the one that was made last. While it waits a container takes a sixth of the memory of
// a gVisor sandbox (docs/performance.md), so nobody has to name what is worth that.
type following struct {
	kind  Kind          // its Count is 0 when there is none
	other shape         // what was made last, if that was another
	asked time.Duration // when one of the kind was made last, by Uptime
}

// forgetTime is how long a kind is followed that nobody asks for.
const forgetTime = 10 * time.Minute

// shape is what of a kind a create asks for.
type shape struct {
	image     string
	isolation sandbox.Isolation
	limits    sandbox.Limits
	user      string
}

func (k Kind) shape() shape { return shape{k.Image, k.Isolation, k.Limits, k.User} }

// followed is the number of the kind that is followed.
func (p *Pool) followed() int { return len(p.cfg.Kinds) }

// kinds are all kinds, by number. The caller holds mu.
func (p *Pool) kinds() []Kind {
	all := p.cfg.Kinds[:len(p.cfg.Kinds):len(p.cfg.Kinds)]
	if p.following.kind.Count > 0 {
		all = append(all, p.following.kind)
	}
	return all
}

// Follow has the next container be like one that is being made: call it when that has been
// admitted. What is ready of another shape goes when this one is made twice in a row: two
// shapes in turn do not have each other removed. What the configuration names is not
// followed, and neither is what is not usual.
func (p *Pool) Follow(w Want) {
	k := Kind{Image: w.Image, Isolation: w.Isolation, Limits: w.Limits, User: w.User, Count: p.cfg.Containers}
	if k.Count == 0 || k.Isolation != sandbox.Container || !w.Usual ||
		slices.ContainsFunc(p.cfg.Kinds, func(c Kind) bool { return c.shape() == k.shape() }) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &p.following
	if f.kind.shape() != k.shape() {
		if f.other != k.shape() && p.countReady(p.followed()) > 0 {
			f.other = k.shape()
			return
		}
		p.fills[p.followed()] = fills{}
	}
	*f = following{kind: k, asked: p.cfg.Uptime()}
}

// served goes on following what a member became a sandbox of. The caller holds mu.
func (p *Pool) served(m *Member) {
	if m.kind == p.followed() && m.of.shape() == p.following.kind.shape() {
		p.following.asked, p.following.other = p.cfg.Uptime(), shape{}
	}
}

// failedFollowing is failed for the kind that is followed: when none of it is left, none is
// made until the next is asked for. The caller holds mu.
func (p *Pool) failedFollowing(k Kind, err error) {
	if k.shape() != p.following.kind.shape() {
		return // another is followed by now
	}
	p.fills[p.followed()].next = p.cfg.Uptime() + firstPause
	if p.countReady(p.followed()) == 0 {
		p.following = following{}
	}
	p.cfg.Log.Warn("make a container like the last to keep ready", "kind", k.String(), telemetry.KeyErr, err)
}

// forget ends what nobody has asked for in a long time, and removes the members that
// are like nothing that is followed.
func (p *Pool) forget() {
	p.mu.Lock()
	if p.cfg.Uptime()-p.following.asked > forgetTime {
		p.following = following{}
	}
	now := p.following.kind.shape()
	p.mu.Unlock()
	p.discardAll(func(m *Member) bool { return m.kind == p.followed() && m.of.shape() != now })
}

// pin pins the image of a member that was followed and is taken; false when that image is
// gone. Until then it could be removed, and made again: whoever does that is not told that it
// is in use when all sandboxes of it that anybody knows are gone.
func (p *Pool) pin(ctx context.Context, m *Member) bool {
	if m.kind != p.followed() {
		return true
	}
	if err := p.cfg.Images.Pin(ctx, m.Digest, m.UID); err != nil {
		return false
	}
	img, err := p.cfg.Images.Resolve(ctx, m.Digest)
	return err == nil && m.isOf(img)
}

// unpin takes back what pin did; false when it cannot.
func (p *Pool) unpin(m *Member) bool {
	if m.kind != p.followed() {
		return true
	}
	ctx, cancel := gate.Detached(context.Background())
	defer cancel()
	return p.cfg.Images.Unpin(ctx, m.Digest, m.UID) == nil
}
