package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// BenchmarkTunnel measures what a CONNECT carries to the guest.
func BenchmarkTunnel(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	const chunk = 1 << 20
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, chunk)
		for {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	r := newRig(b, l.Addr().String())
	c := r.dial()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", l.Addr())
	br := bufio.NewReader(c)
	if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		b.Fatalf("CONNECT = %q, %v", line, err)
	}
	b.SetBytes(chunk)
	for b.Loop() {
		if _, err := io.CopyN(io.Discard, br, chunk); err != nil {
			b.Fatal(err)
		}
	}
}
