package oci

import (
	"fmt"
	"os"
	"time"

	"github.com/cubbyhq/cubby/internal/driver/oci/network"
)

const (
	// spareNamespaces is how many of each kind are made ahead.
	spareNamespaces = 4
	// refillAfter is longer than most creates take: the fork copies this
	// process's page tables and makes its next writes slow.
	refillAfter = 250 * time.Millisecond
)

// containerNetwork is a network namespace that a container is going to have.
type containerNetwork struct {
	*os.File
	redirected bool
}

// newNetwork makes the namespace of a container.
func (d *Driver) newNetwork() (containerNetwork, error) {
	n := containerNetwork{redirected: d.redirects()}
	var err error
	if n.File, err = network.New(n.redirected); err != nil {
		return n, fmt.Errorf("the container's network: %w", err)
	}
	return n, nil
}

// network returns a namespace for a container, redirected or not. The caller closes
// it.
func (d *Driver) network(redirected bool) (*os.File, error) {
	n, err := d.networks.Take()
	if err != nil {
		return nil, err
	}
	if n.redirected == redirected {
		return n.File, nil
	}
	_ = n.Close() // it was made before the host could redirect
	return network.New(redirected)
}

// probeAgain is after how long a host that could not redirect is asked again.
const probeAgain = time.Minute

// redirects reports whether containers can be redirected. What worked once is not
// tried again, and what did not is for a while not.
func (d *Driver) redirects() bool {
	if d.redirected.Load() {
		return true
	}
	if failed := d.redirectFailed.Load(); failed != nil && time.Since(*failed) < probeAgain {
		return false
	}
	if err := network.CanRedirect(); err != nil {
		d.log.Warn("names are not resolved in a container", "err", err)
		now := time.Now()
		d.redirectFailed.Store(&now)
		return false
	}
	d.redirected.Store(true)
	return true
}
