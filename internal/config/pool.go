package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Pools is what is kept ready for creates. The zero value is nothing.
type Pools struct {
	Auto bool // cubby's own choice for the host
	List []Pool
}

// Pool is a number of sandboxes of one kind. What is zero is as in a create.
type Pool struct {
	Count     int
	Image     string
	Isolation sandbox.Isolation
	Limits    Limits
	User      string
	Kernel    string // the language of the kernel that each has ready; "" is none
	Modules   []string
}

// What stands between pools, and between the modules of one.
const (
	poolSeparator   = ";"
	moduleSeparator = "+"
)

const (
	maxPoolCount = 100
	maxPools     = 20
)

// ParsePools reads auto, off, or pools as "count=2,image=base,kernel=python;count=1,…".
func ParsePools(text string) (p Pools, err error) {
	switch strings.TrimSpace(text) {
	case "auto":
		return Pools{Auto: true}, nil
	case "off":
		return Pools{}, nil
	}
	for one := range strings.SplitSeq(text, poolSeparator) {
		if strings.TrimSpace(one) == "" {
			continue
		}
		pool, err := parsePool(one)
		if err != nil {
			return Pools{}, err
		}
		p.List = append(p.List, pool)
	}
	switch {
	case len(p.List) == 0:
		return p, errs.E(errs.Invalid, "no pool").Hint("write auto, off, or count=2,image=base,kernel=python")
	case len(p.List) > maxPools:
		return p, errs.E(errs.Invalid, "%d pools are more than %d", len(p.List), maxPools)
	}
	return p, nil
}

// poolKeys are the keys of a pool, in the file as in the text.
var poolKeys = []string{"count", "image", "isolation", "memory", "cpus", "pids", "disk", "user", "kernel", "modules"}

func parsePool(text string) (p Pool, err error) {
	p.Count = 1
	var limits []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		key, value, _ := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !slices.Contains(poolKeys, key) {
			return p, errs.E(errs.Invalid, "%q is not a key of a pool", key).Hint("the keys are %s", strings.Join(poolKeys, ", "))
		}
		switch key {
		case "count":
			if p.Count, err = strconv.Atoi(value); err != nil || p.Count < 1 || p.Count > maxPoolCount {
				return p, errs.E(errs.Invalid, "count: %q is not a number between 1 and %d", value, maxPoolCount)
			}
		case "image":
			p.Image = value
		case "isolation":
			p.Isolation = sandbox.Isolation(value)
		case "user":
			p.User = value
		case "kernel":
			if p.Kernel, err = poolKernel(value); err != nil {
				return p, err
			}
		case "modules":
			p.Modules = strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(moduleSeparator, r) })
		default:
			limits = append(limits, item)
		}
	}
	if len(p.Modules) > 0 && p.Kernel == "" {
		return p, errs.E(errs.Invalid, "modules: there is no kernel to import them in").Hint("add kernel=python")
	}
	p.Limits, err = ParseLimits(strings.Join(limits, ","))
	return p, err
}

func poolKernel(value string) (string, error) {
	switch value {
	case "none":
		return "", nil
	case sandbox.RuntimePython, sandbox.RuntimeNode, sandbox.RuntimeR:
		return value, nil
	}
	return "", errs.E(errs.Invalid, "kernel: %q is not python, node, r or none", value)
}

// poolsText writes the tables of the file, [[pool]], as one text.
func poolsText(tables []map[string]any) (string, error) {
	pools := make([]string, len(tables))
	for i, table := range tables {
		var items []string
		for _, key := range slices.Sorted(maps.Keys(table)) {
			value := fmt.Sprint(table[key])
			if list, ok := table[key].([]any); ok {
				words := make([]string, len(list))
				for i, word := range list {
					words[i] = fmt.Sprint(word)
				}
				value = strings.Join(words, moduleSeparator)
			}
			if strings.ContainsAny(value, ",;=") {
				return "", errs.E(errs.Invalid, "pool: %s has a comma, a semicolon or an equals sign", key)
			}
			items = append(items, key+"="+value)
		}
		if len(items) == 0 {
			items = []string{"count=1"}
		}
		pools[i] = strings.Join(items, ",")
	}
	return strings.Join(pools, poolSeparator), nil
}
