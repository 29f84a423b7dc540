package preview

import (
	"net"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Names are the host names under which ports are seen, each a label below one
// domain, and how their addresses are written.
type Names struct {
	Scheme string // as visitors see it: http or https
	Domain string // lower case, without a dot at its ends
	Port   string // as visitors see it; "": the scheme's own
}

// ParseDomain checks a domain below which previews are to be, and returns it as
// [Names] has it.
func ParseDomain(text string) (string, error) {
	domain := strings.ToLower(strings.TrimSuffix(text, "."))
	// 63 bytes of a label and its dot come before it.
	if domain == "" || len(domain) > 253-64 || net.ParseIP(domain) != nil {
		return "", errs.E(errs.Invalid, "%q is no domain", text)
	}
	for label := range strings.SplitSeq(domain, ".") {
		bad := strings.IndexFunc(label, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
		})
		if label == "" || len(label) > 63 || bad >= 0 {
			return "", errs.E(errs.Invalid, "%q is no domain", text)
		}
	}
	return domain, nil
}

// URL is the address of a port.
func (n Names) URL(id string, port int) string {
	host := "s-" + strings.ToLower(id) + "-" + strconv.Itoa(port) + "." + n.Domain
	if n.Port != "" {
		host += ":" + n.Port
	}
	return n.Scheme + "://" + host + "/"
}

// target is a port that a host name names, and the origin of its pages as the
// visitor has it: who comes through a tunnel sees another port.
type target struct {
	id     string
	port   int
	origin string
}

// target reads a Host: s-{id}-{port}.{domain} or {port}-{id}.{domain}, in any
// case, with or without a port of its own and a dot at its end. It reports false
// for every other.
func (n Names) target(host string) (target, bool) {
	name := strings.ToLower(host)
	t := target{origin: n.Scheme + "://" + name}
	if i := strings.LastIndexByte(name, ':'); i >= 0 {
		port := name[i+1:]
		if _, ok := number(port); !ok && port != "" {
			return target{}, false
		}
		name = name[:i]
		if port == "" || port == map[string]string{"http": "80", "https": "443"}[n.Scheme] {
			t.origin = n.Scheme + "://" + name
		}
	}
	label, ok := strings.CutSuffix(strings.TrimSuffix(name, "."), "."+n.Domain)
	if !ok || strings.Contains(label, ".") {
		return target{}, false
	}
	var port string
	if rest, ok := strings.CutPrefix(label, "s-"); ok {
		i := strings.LastIndexByte(rest, '-')
		if i < 0 {
			return target{}, false
		}
		t.id, port = rest[:i], rest[i+1:]
	} else if port, t.id, ok = strings.Cut(label, "-"); !ok {
		return target{}, false
	}
	if _, err := sandbox.ParseID(t.id); err != nil {
		return target{}, false
	}
	t.port, ok = number(port)
	return t, ok
}

// number reads a port as it is written in its shortest form.
func number(text string) (int, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int(n), err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}
