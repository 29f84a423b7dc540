// Package network makes the network namespaces of containers: loopback and nothing
// else, with TCP connections to everywhere redirected to the agent, where the host's
// kernel can do that. They belong to the host's user namespace, so nobody inside has
// power over them.
package network

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/driver/oci/thread"
	"github.com/cubbyhq/cubby/internal/errs"
)

// New makes a namespace that lives as long as the file, or a process in it.
func New(redirected bool) (ns *os.File, err error) {
	t := thread.New()
	defer t.End()
	err = t.Do(func() error {
		if err := loopbackOnly(); err != nil {
			return err
		}
		if redirected {
			if err := redirectAll(); err != nil {
				return err
			}
		}
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return ns, err
}

// Enter moves the calling thread into a namespace, for good: use it on a
// [thread.Thread].
func Enter(ns *os.File) error {
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	return nil
}

// loopbackOnly gives the thread a network namespace with nothing but loopback.
// It belongs to the host's user namespace: root inside the sandbox has no
// power over it, so the host's packet filter code is out of reach. In exchange
// low ports are free to everybody inside.
func loopbackOnly() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make network namespace: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring up loopback: %w", err)
	}
	for name, value := range map[string]string{
		"ip_unprivileged_port_start": "0",
		"ping_group_range":           "0 2147483647",
	} {
		// Read-only where cubby itself runs in a container: then low ports
		// stay root's.
		_ = os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0)
	}
	return nil
}

// CanRedirect reports whether this host can redirect the connections of
// containers, by doing so in a network namespace of its own; errs.Unsupported
// says what is missing.
func CanRedirect() error {
	ns, err := New(true)
	if err == nil {
		return ns.Close()
	}
	return errs.E(errs.Unsupported, "programs in containers need the proxy variables: this host's kernel cannot redirect their connections").
		Hint("load nf_tables with nft_redir, nft_ct, nft_connlimit and nft_reject_ipv4 (modprobe), or use gVisor").Because(err)
}
