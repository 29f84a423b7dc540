package bench

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/meminfo"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// Machine describes where the figures come from.
type Machine struct {
	CPU      string   `json:"cpu"`
	CPUs     int      `json:"cpus"`
	Memory   int64    `json:"memory_bytes"`
	OS       string   `json:"os"`
	Kernel   string   `json:"kernel"`
	Cgroups  string   `json:"cgroups"`
	Load     string   `json:"load"`
	Runtimes []string `json:"runtimes"`
	Cubby    string   `json:"cubby"`
}

func machine(ctx context.Context) Machine {
	m := Machine{
		CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(), OS: strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`),
		Cubby: "cubby " + telemetry.Version, Cgroups: "v1",
	}
	if memory, err := meminfo.Read(); err == nil {
		m.Memory = memory.Total
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.Cgroups = "v2"
	} else if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.procs"); err == nil {
		m.Cgroups = "v1 hybrid"
	}
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _, _ = strings.Cut(string(data), " ")
	}
	for _, name := range []string{"crun", "runc"} {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		out, err := exec.CommandContext(ctx, name, "--version").Output()
		cancel()
		if err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			m.Runtimes = append(m.Runtimes, strings.Replace(line, " version ", " ", 1))
		}
	}
	return m
}

// field reads "name: value" or "name=value" from a file.
func field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		rest, ok := strings.CutPrefix(line, name)
		rest = strings.TrimLeft(rest, " \t")
		if ok && rest != "" && (rest[0] == ':' || rest[0] == '=') {
			return strings.TrimSpace(rest[1:])
		}
	}
	return ""
}
