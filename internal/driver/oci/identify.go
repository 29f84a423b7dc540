package oci

import (
	"context"
	"fmt"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/agent"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Identify implements driver.Driver. The agent takes the identity and writes the
// files of /etc, as the sandbox's root; in gVisor it sets the host name too. A
// container's is set from here, in its UTS namespace: that takes CAP_SYS_ADMIN
// over the container's user namespace, which nothing inside gets.
func (d *Driver) Identify(ctx context.Context, h driver.Handle, is driver.Identity) (driver.Identified, error) {
	var none driver.Identified
	n, err := d.places.parse(h)
	if err != nil {
		return none, err
	}
	if err := is.Validate(); err != nil {
		return none, err
	}
	if is.ID == "" {
		return none, errs.E(errs.Invalid, "an identity has an id")
	}
	r, err := d.held(h)
	if err != nil {
		return none, err
	}
	name, warnings, err := d.tellIdentity(ctx, n, r, is)
	if err != nil {
		return none, err
	}
	if n.Isolation == sandbox.Container {
		if err := r.process.SetHostname(is.ID); err != nil {
			return none, err
		}
	} else if name != is.ID {
		return none, errs.E(errs.Internal, "the sandbox could not be named").Because(fmt.Errorf("its kernel has the name %.80q", name))
	}
	n.Hostname, n.Env = is.ID, is.Env
	h, err = d.places.handle(n)
	return driver.Identified{Handle: h, Warnings: warnings}, err
}

// tellIdentity gives the agent an identity, and the agent of a restored sandbox a
// secret of its own with the first.
func (d *Driver) tellIdentity(ctx context.Context, n note, r *run, is driver.Identity) (hostname string, warnings []string, err error) {
	b := d.box(n.UID)
	rec, _, err := b.record()
	if err != nil {
		return "", nil, err
	}
	line := r.line()
	if rec.NextSecret == "" {
		hostname, err = agent.New(line.Dial, &r.agent).Identify(ctx, n.Hostname, is)
		return hostname, nil, err
	}
	known := line.Rekey(rec.NextSecret)
	hostname, warnings, err = agent.New(line.Dial, &r.agent).IdentifyCopy(ctx, n.Hostname, is, rec.NextSecret)
	if err != nil {
		return "", nil, err
	}
	known()
	rec.Secret, rec.NextSecret = rec.NextSecret, ""
	return hostname, warnings, b.setRecord(rec)
}
