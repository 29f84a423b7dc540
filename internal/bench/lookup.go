package bench

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// lookups measures questions about names: one about localhost, which no policy is
// asked about and which shows what asking takes, one about a name that
// was asked for before, one about a new name, each as C libraries ask it (a
// blocking socket, a datagram to the sandbox's name server and one back), and all
// that Go's resolver does for a name that was asked for before.
func (p Probe) lookups(ctx context.Context, out *Probed) (err error) {
	if out.OwnLookups, err = repeat(ctx, p.Lookups, func() error { return ask("bench.localhost") }); err != nil {
		return fmt.Errorf("lookups of localhost: %w", err)
	}
	if out.Lookups, err = repeat(ctx, p.Lookups, func() error { return ask(p.Name) }); err != nil {
		return fmt.Errorf("lookups: %w", err)
	}
	n := 0
	if out.NewLookups, err = repeat(ctx, p.NewLookups, func() error {
		n++
		return ask(fmt.Sprintf("n%d.%s", n, p.Name))
	}); err != nil {
		return fmt.Errorf("lookups of new names: %w", err)
	}
	if out.GoLookups, err = repeat(ctx, p.Lookups, func() error {
		_, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", p.Name+".")
		return err
	}); err != nil {
		return fmt.Errorf("lookups by Go's resolver: %w", err)
	}
	return nil
}

// ask asks the name server for the IPv4 address of a name.
func ask(name string) error {
	fqdn, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return err
	}
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: fqdn, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	text, err := question.Pack()
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return err
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if _, err := unix.Write(fd, text); err != nil {
		return err
	}
	reply := make([]byte, 512)
	read, err := unix.Read(fd, reply)
	for errors.Is(err, unix.EINTR) { // a read with a time limit is not restarted after a signal
		read, err = unix.Read(fd, reply)
	}
	if err != nil {
		return err
	}
	var answer dnsmessage.Message
	if err := answer.Unpack(reply[:read]); err != nil {
		return err
	}
	if answer.RCode != dnsmessage.RCodeSuccess || len(answer.Answers) != 1 {
		return fmt.Errorf("%s: %s with %d addresses", name, answer.RCode, len(answer.Answers))
	}
	return nil
}
