package guestd

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// maxBoot bounds the boot document: an environment can be long.
const maxBoot = 4 << 20

// ReadBoot reads the one JSON document that the host writes to the agent's
// standard input. Fields that this version does not know are skipped: the
// host may be newer.
func ReadBoot(r io.Reader) (*guestv1.Boot, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBoot+1))
	if err != nil {
		return nil, fmt.Errorf("boot document: %w", err)
	}
	if len(text) > maxBoot {
		return nil, errors.New("boot document: too long")
	}
	boot := new(guestv1.Boot)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, boot); err != nil {
		return nil, fmt.Errorf("boot document: %w", err)
	}
	return boot, checkBoot(boot)
}

func checkBoot(b *guestv1.Boot) error {
	switch {
	case !validSecret(b.GetSecret()):
		return errors.New("boot document: secret must be 1 to 128 printable characters")
	case !path.IsAbs(b.GetSocket()) || strings.ContainsRune(b.GetSocket(), 0):
		return errors.New("boot document: socket must be an absolute path")
	case b.GetMemoryBytes() < 0 || b.GetPids() < 0 || b.GetOpenFiles() < 0:
		return errors.New("boot document: a limit is negative")
	}
	if !validEnv(b.GetEnv()) {
		return errors.New("boot document: malformed environment")
	}
	for name, listen := range map[string]string{
		"egress_listen": b.GetEgressListen(), "resolver_listen": b.GetResolverListen(), "redirect_listen": b.GetRedirectListen(),
	} {
		if listen == "" {
			continue
		}
		if a, err := netip.ParseAddrPort(listen); err != nil || !a.Addr().IsLoopback() {
			return fmt.Errorf("boot document: %s must be an address and port on loopback", name)
		}
	}
	if (b.GetResolverListen() == "") != (b.GetRedirectListen() == "") {
		return errors.New("boot document: resolver_listen and redirect_listen go together")
	}
	return nil
}

// validSecret reports whether a secret can stand in a hello.
func validSecret(secret string) bool {
	const longest = 128
	notPrintable := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	return secret != "" && len(secret) <= longest && !strings.ContainsFunc(secret, notPrintable)
}

// validEnv reports whether commands can be given an environment.
func validEnv(env []string) bool {
	return !slices.ContainsFunc(env, func(kv string) bool {
		return strings.IndexByte(kv, '=') < 1 || strings.ContainsRune(kv, 0)
	})
}
