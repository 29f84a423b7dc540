package pool

import (
	"context"
	"time"

	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// following is the kind that comes after those of the configuration: containers like
// the one that was asked for last. While it waits a container takes a sixth of the memory
// of a gVisor sandbox (docs/performance.md), so nobody has to name what is worth that.
type following struct {
	kind  Kind          // its Count is 0 when there is none
	other shape         // what was asked for last, if that was another
	asked time.Duration // when the kind was asked for last, by Uptime
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

// follow has the next container be like one that is asked for. What is ready of another
// shape goes when this one is asked for twice in a row: two shapes in turn do not have
// each other removed. The caller holds mu.
func (p *Pool) follow(w Want) {
	if p.cfg.Containers == 0 || w.Isolation != sandbox.Container || !w.Usual {
		return
	}
	k := Kind{Image: w.Image, Isolation: w.Isolation, Limits: w.Limits, User: w.User, Count: p.cfg.Containers}
	f := &p.following
	if f.kind.shape() != k.shape() && f.other != k.shape() && p.countReady(p.followed()) > 0 {
		f.other = k.shape()
		return
	}
	*f = following{kind: k, asked: p.cfg.Uptime()}
}

// unfollow keeps no containers ready until the next is asked for. The caller holds mu.
func (p *Pool) unfollow() { p.following = following{} }

// forget unfollows what nobody has asked for in a long time, and removes the members
// that are like nothing that is followed.
func (p *Pool) forget() {
	p.mu.Lock()
	if p.cfg.Uptime()-p.following.asked > forgetTime {
		p.unfollow()
	}
	now := p.following.kind.shape()
	p.mu.Unlock()
	p.discardAll(func(m *Member) bool { return m.kind == p.followed() && m.of.shape() != now })
}

// grasp pins the image of a member that was followed and is taken; false when it cannot.
// Until then the image could be removed: nobody who wants to may be told that it is in
// use, when all sandboxes of it that anybody knows are gone.
func (p *Pool) grasp(m *Member) bool {
	if m.kind != p.followed() {
		return true
	}
	ctx, cancel := gate.Detached(context.Background())
	defer cancel()
	return p.cfg.Images.Pin(ctx, m.Digest, m.UID) == nil
}

// letGo takes back what grasp did.
func (p *Pool) letGo(m *Member) bool {
	if m.kind != p.followed() {
		return true
	}
	ctx, cancel := gate.Detached(context.Background())
	defer cancel()
	return p.cfg.Images.Unpin(ctx, m.Digest, m.UID) == nil
}
