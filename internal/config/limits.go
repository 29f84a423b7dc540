package config

import (
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Limits are the limits of the sandboxes that one interface makes. Zero fields
// are left to cubby.
type Limits sandbox.Limits

// ParseLimits reads memory=4GiB,cpus=4,pids=512,disk=4GiB, or some of it.
func ParseLimits(text string) (l Limits, err error) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, value, _ := strings.Cut(item, "=")
		switch name, value = strings.TrimSpace(name), strings.TrimSpace(value); name {
		case "memory", "disk":
			size, err := ParseBytes(value)
			if err != nil {
				return l, err
			}
			if name == "memory" {
				l.MemoryBytes = int64(size)
			} else {
				l.DiskBytes = int64(size)
			}
		case "cpus":
			if l.CPUs, err = strconv.ParseFloat(value, 64); err != nil {
				return l, errs.E(errs.Invalid, "%q is not a number of CPUs", value)
			}
		case "pids":
			if l.PIDs, err = strconv.ParseInt(value, 10, 64); err != nil {
				return l, errs.E(errs.Invalid, "%q is not a number of processes", value)
			}
		default:
			return l, errs.E(errs.Invalid, "%q is not memory, cpus, pids or disk", name).Hint("write memory=4GiB,cpus=4,pids=512,disk=4GiB")
		}
	}
	return l, nil
}
