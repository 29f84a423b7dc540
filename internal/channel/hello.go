package channel

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// kind is what a connection is for.
type kind string

const (
	kindControl kind = "control"
	kindPool    kind = "pool"
	kindEgress  kind = "egress"  // to the proxy
	kindConnect kind = "connect" // a connection that a program made by itself
	kindResolve kind = "resolve" // questions about names
)

// doors are the kinds that lead to the outside.
var doors = map[kind]sandbox.Door{
	kindEgress: sandbox.DoorProxy, kindConnect: sandbox.DoorConnect, kindResolve: sandbox.DoorResolve,
}

// maxHello bounds the first line, with its newline.
const maxHello = 256

var (
	errHello  = errors.New("malformed first line")
	errSecret = errors.New("wrong secret")
)

// readHello reads the line with which the agent says what a connection is for
// and proves who it is. It reads nothing beyond the line.
func readHello(conn net.Conn, secrets func() []string, deadline time.Time) (kind, error) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	// What follows belongs to whoever gets the connection, so the line is
	// read byte by byte.
	line := make([]byte, 0, maxHello)
	for one := make([]byte, 1); ; {
		if _, err := conn.Read(one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			break
		}
		if line = append(line, one[0]); len(line) >= maxHello {
			return "", errHello
		}
	}
	k, err := parseHello(string(line), secrets())
	if err != nil {
		return "", err
	}
	return k, conn.SetReadDeadline(time.Time{})
}

// parseHello reads "CUBBY<version> <secret> <kind>". Of versions that are not
// supported only the secret is read: the rest may look otherwise.
func parseHello(line string, secrets []string) (kind, error) {
	f := strings.Split(line, " ")
	digits, ours := strings.CutPrefix(f[0], "CUBBY")
	version, err := strconv.ParseUint(digits, 10, 16)
	if !ours || err != nil || strconv.FormatUint(version, 10) != digits || len(f) < 2 {
		return "", errHello
	}
	// Sums, so that not even the secret's length can be measured.
	got, same := sha256.Sum256([]byte(f[1])), 0
	for _, secret := range secrets {
		want := sha256.Sum256([]byte(secret))
		same |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	if same != 1 {
		return "", errSecret
	}
	if v := foreignVersion(version); !v.supported() {
		return "", v
	}
	if len(f) != 3 {
		return "", errHello
	}
	switch k := kind(f[2]); k {
	case kindControl, kindPool, kindEgress, kindConnect, kindResolve:
		return k, nil
	}
	return "", errHello
}
