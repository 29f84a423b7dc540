package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/tenancy"
)

// Guest is who opened a stream: a sandbox, and the tenant that it belongs to,
// with whose other sandboxes it shares what they may hold. "" is no tenant.
type Guest struct {
	Box    sandbox.UID
	Tenant string
}

// A stream takes two descriptors, the memory of its buffers, and a port of the
// host's. A lookup takes descriptors too, and a place at the host's resolver.
var (
	streamBound = tenancy.Bound{All: 8192, Tenant: 2048, Reserved: 1024}
	lookupBound = tenancy.Bound{All: 256, Tenant: 64, Reserved: 64}
)

const streamsOpen = "connections to the outside open"

// refusalTime is how long a stream without a place may take to send its request
// and to read the refusal.
const refusalTime = time.Second

// turnAway answers the first request of a stream that has no place: as the proxy
// does, HTTP or SOCKS, or as a host would that a program connected to.
func turnAway(ctx context.Context, conn net.Conn, door sandbox.Door, why error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(refusalTime))
	if door != sandbox.DoorProxy {
		if _, _, err := readTarget(conn); door == sandbox.DoorConnect && err == nil {
			tellProgram(conn, http.StatusServiceUnavailable, "cubby: "+errs.Public(why).Message+"\n")
		}
		return
	}
	from := bufio.NewReader(io.LimitReader(conn, maxHeaderBytes))
	first, err := from.ReadByte()
	if err != nil {
		return
	}
	if first == socksVersion {
		_, _, refusal := readSocks(struct {
			io.Reader
			io.Writer
		}{from, conn})
		if refusal == nil {
			refusal = socksReply(socksFailure)
		}
		_, err = conn.Write(refusal)
	} else {
		for line := "x"; len(line) > 0 && err == nil; {
			var part []byte
			part, _, err = from.ReadLine()
			line = string(part)
		}
		if err != nil {
			return
		}
		text := "cubby: " + errs.Public(why).Message
		_, err = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\nRetry-After: 1\r\n\r\n%s\n",
			http.StatusServiceUnavailable, printable(text, maxStatusLine), len(text)+1, text)
	}
	if err == nil && closeWrite(conn) == nil {
		_, _ = io.Copy(io.Discard, from)
	}
}
