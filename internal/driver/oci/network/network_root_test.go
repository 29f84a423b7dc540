//go:build root

package network

import (
	"net"
	"testing"

	"github.com/cubbyhq/cubby/internal/driver/oci/thread"
)

// TestNew: a namespace has loopback, which is up, and nothing else, whoever enters it.
func TestNew(t *testing.T) {
	for _, redirected := range []bool{false, true} {
		ns, err := New(redirected)
		if err != nil {
			t.Fatal(err)
		}
		on := thread.New()
		if err := on.Do(func() error {
			if err := Enter(ns); err != nil {
				return err
			}
			links, err := net.Interfaces()
			if len(links) != 1 || links[0].Name != "lo" || links[0].Flags&net.FlagUp == 0 {
				t.Errorf("redirected %t: %+v, want lo alone, up", redirected, links)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		on.End()
		if err := ns.Close(); err != nil {
			t.Error(err)
		}
	}
}
