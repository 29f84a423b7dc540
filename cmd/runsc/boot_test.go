package main

import (
	"maps"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/flag"
)

func TestShown(t *testing.T) {
	tests := []struct {
		name string
		r    specs.LinuxResources
		want map[string]string
	}{
		{"nothing", specs.LinuxResources{}, map[string]string{}},
		{
			"memory",
			specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: new(int64(1 << 30))}},
			map[string]string{"total-memory": "1073741824"},
		},
		{
			"half a processor shows two",
			specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(50000)), Period: new(uint64(100000))}},
			map[string]string{"cpu-num": "2", "cpu-quota": "50000", "cpu-period": "100000"},
		},
		{
			"two and a half show three",
			specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: new(int64(250000)), Period: new(uint64(100000))}},
			map[string]string{"cpu-num": "3", "cpu-quota": "250000", "cpu-period": "100000"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := shown(&tt.r); !maps.Equal(got, tt.want) {
				t.Errorf("shown = %v, want %v", got, tt.want)
			}
		})
	}
}

// The names in shown are upstream's: a new version of the module that renames
// one fails here and not by showing the host's size to every sandbox.
func TestShownFlagsExist(t *testing.T) {
	set := flag.NewFlagSet("boot", flag.ContinueOnError)
	new(boot).SetFlags(set)
	all := shown(&specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: new(int64(1))},
		CPU:    &specs.LinuxCPU{Quota: new(int64(1)), Period: new(uint64(1))},
	})
	all["spec-fd"] = "3"
	for name := range all {
		if set.Lookup(name) == nil {
			t.Errorf("upstream's boot has no flag %q", name)
		}
	}
}
