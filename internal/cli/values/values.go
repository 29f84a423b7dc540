// Package values reads what flags hold: pairs, environments and sizes.
package values

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/cubbyhq/cubby/internal/config"
)

// Environment reads -e and --env-file; -e wins. A bare KEY takes the value that
// lookup has, and is left out when there is none.
func Environment(lookup func(name string) (string, bool), vars, files []string) (map[string]string, error) {
	env := map[string]string{}
	set := func(line string) error {
		k, v, ok := strings.Cut(line, "=")
		if k == "" {
			return fmt.Errorf("environment %q has no name", line)
		}
		if !ok {
			if v, ok = lookup(k); !ok {
				return nil
			}
		}
		env[k] = v
		return nil
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for err == nil && lines.Scan() {
			if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
				err = set(line)
			}
		}
		if err == nil {
			err = lines.Err()
		}
		_ = f.Close() // only read
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, v := range vars {
		if err := set(v); err != nil {
			return nil, err
		}
	}
	if len(env) == 0 {
		return nil, nil
	}
	return env, nil
}

// Pairs reads KEY=VALUE flags.
func Pairs(what string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, item := range list {
		k, v, ok := strings.Cut(item, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("%s %q is not KEY=VALUE", what, item)
		}
		m[k] = v
	}
	return m, nil
}

// Size is a flag for sizes: what config accepts, and the short forms 512m
// and 2g of other tools.
type Size int64

func (b *Size) String() string {
	if *b == 0 {
		return ""
	}
	return config.Bytes(*b).String()
}

func (b *Size) Type() string { return "size" }

func (b *Size) Set(s string) error {
	long := s
	if n := len(s); n > 0 {
		if i := strings.IndexByte("kmgt", s[n-1]|0x20); i >= 0 {
			long = s[:n-1] + "KMGT"[i:i+1] + "iB"
		}
	}
	v, err := config.ParseBytes(long)
	if err != nil {
		return fmt.Errorf("%q is not a size: write 512MiB or 2GiB", s)
	}
	*b = Size(v)
	return nil
}
