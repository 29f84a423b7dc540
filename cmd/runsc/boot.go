package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"syscall"

	"github.com/google/subcommands"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
)

// boot is upstream's command that becomes the sandbox. Before it does, the
// sizes that the sandbox shows to its programs, whether its first process is
// shielded from them, and whether it waits for its files, are taken from the specification.
type boot struct{ sentrycmd.Boot }

// Execute implements subcommands.Command.
func (b *boot) Execute(ctx context.Context, f *flag.FlagSet, args ...any) subcommands.ExitStatus {
	offerFilters()
	leaveTracePoints()
	spec, err := specification(f)
	if err == nil && shielded(spec) {
		err = raiseShield()
	}
	if err == nil {
		err = takeStores(spec, f, func() error { return b.doAhead(args[0].(*config.Config)) })
	}
	if err != nil {
		// A sandbox without its limits or its shield is worse than none.
		log.Warningf("%v", err)
		return subcommands.ExitFailure
	}
	if spec.Linux != nil && spec.Linux.Resources != nil {
		for name, value := range shown(spec.Linux.Resources) {
			// The flags exist: this file and upstream are one build, and the
			// root tests read the result inside a sandbox.
			_ = f.Set(name, value)
		}
	}
	if err := hurryClock(); err != nil {
		log.Warningf("programs that ask for the time are slow for a second: %v", err)
	}
	if err := leaveCPUID(); err != nil {
		log.Warningf("CPUID faults, and all system calls are slower: %v", err)
	}
	return b.Boot.Execute(ctx, f, args...)
}

// specification reads what upstream passes to this process. Its file offset stays
// where it is.
func specification(f *flag.FlagSet) (*specs.Spec, error) {
	fd := f.Lookup("spec-fd")
	if fd == nil {
		return nil, errors.New("upstream passes no specification")
	}
	n, err := strconv.Atoi(fd.Value.String())
	if err != nil {
		return nil, fmt.Errorf("the specification's descriptor: %w", err)
	}
	dup, err := syscall.Dup(n)
	if err != nil {
		return nil, fmt.Errorf("the specification's descriptor %d: %w", n, err)
	}
	file := os.NewFile(uintptr(dup), "spec")
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	var spec specs.Spec
	if err := json.NewDecoder(io.NewSectionReader(file, 0, info.Size())).Decode(&spec); err != nil {
		return nil, fmt.Errorf("read the specification: %w", err)
	}
	return &spec, nil
}

// shown maps limits to the boot flags that make them visible: total memory,
// the number of processors, and the quota in the sandbox's own cgroup files.
func shown(r *specs.LinuxResources) map[string]string {
	flags := make(map[string]string)
	if m := r.Memory; m != nil && m.Limit != nil && *m.Limit > 0 {
		flags["total-memory"] = strconv.FormatInt(*m.Limit, 10)
	}
	if c := r.CPU; c != nil && c.Quota != nil && c.Period != nil && *c.Quota > 0 && *c.Period > 0 {
		n := int(math.Ceil(float64(*c.Quota) / float64(*c.Period)))
		// Programs that see one processor leave out locks that gVisor needs.
		flags["cpu-num"] = strconv.Itoa(max(n, 2))
		flags["cpu-quota"] = strconv.FormatInt(*c.Quota, 10)
		flags["cpu-period"] = strconv.FormatUint(*c.Period, 10)
	}
	return flags
}
