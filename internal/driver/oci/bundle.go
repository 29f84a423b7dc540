package oci

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// bundle is what the specification of a run depends on besides the note.
type bundle struct {
	note       note
	box        box
	cgroups    cgroup.Hierarchy
	nofile     uint64   // most that RLIMIT_NOFILE can be here
	oom        int      // oom_score_adj: what the host kills first
	root       string   // the root filesystem as the runtime sees it
	userns     string   // the user namespace that the runtime joins; "": it makes one
	sysfs      string   // prepared /sys of a container
	cgroup     string   // prepared directory of its cgroup view
	sharedRoot string   // of gVisor, for what its runs have in common
	network    *os.File // a container's network namespace
	nobodys    bool     // it is of a sentry that no sandbox has yet
}

const specVersion = "1.0.2" // the oldest that says all that is needed; crun 1.8 and runc 1.1 warn above theirs

// spec describes one run to the runtime.
func (b bundle) spec() *specs.Spec {
	s := &specs.Spec{
		Version:  specVersion,
		Hostname: b.note.name(),
		Root:     &specs.Root{Path: b.root},
		Process: &specs.Process{
			Cwd:             "/",
			Args:            []string{driver.InitPath},
			Env:             []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			NoNewPrivileges: true,
			OOMScoreAdj:     &b.oom,
			Rlimits: []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Hard: b.openFiles(), Soft: b.openFiles()},
				{Type: "RLIMIT_CORE"},
			},
		},
		Linux: &specs.Linux{},
	}
	if b.note.Isolation == sandbox.GVisor {
		b.gvisor(s)
	} else {
		b.container(s)
	}
	return s
}

// openFiles is the limit of the agent, which lowers it for commands and needs
// some for itself.
func (b bundle) openFiles() uint64 {
	return min(uint64(max(b.note.Limits.OpenFiles, 4096)), b.nofile)
}

// shared are the mounts that every sandbox has: its files, the agent and the
// agent's channel, and the three files of /etc that name the machine.
func (b bundle) shared() []specs.Mount {
	bind := func(from, to string, options ...string) specs.Mount {
		return specs.Mount{Destination: to, Type: "bind", Source: from, Options: append([]string{"bind"}, options...)}
	}
	var mounts []specs.Mount
	for _, v := range b.note.Volumes {
		target, access := v.Role.Target(), "rw"
		if target == "" {
			continue
		}
		if v.ReadOnly {
			access = "ro"
		}
		mounts = append(mounts, bind(v.Dir, target, access, "nosuid", "nodev"))
	}
	mounts = append(mounts,
		bind(b.box.channel(), driver.ChannelDir, "ro", "nosuid", "nodev", "noexec"),
		bind(b.note.Init.Path, driver.InitPath, "ro", "nosuid", "nodev"),
	)
	for _, name := range machineFiles {
		mounts = append(mounts, bind(filepath.Join(b.note.root(), "etc", name), "/etc/"+name, "rw", "nosuid", "nodev", "noexec"))
	}
	switch {
	case b.note.Authorities == "":
	case b.note.AuthoritiesDir:
		mounts = append(mounts, bind(b.note.authoritiesDir(), driver.AuthoritiesDir, "rw", "nosuid", "nodev", "noexec"))
	default:
		mounts = append(mounts, bind(filepath.Join(b.note.root(), "etc", authoritiesFile), driver.AuthoritiesPath, "rw", "nosuid", "nodev", "noexec"))
	}
	return mounts
}

const authoritiesFile = "ca-certificates.crt"

// machineFiles are the files of /etc that name the machine.
var machineFiles = []string{"hosts", "hostname", "resolv.conf"}

// layMachineFiles writes machineFiles to the disk, where the sandbox may change them
// within its quota.
func (n note) layMachineFiles() error {
	dir := filepath.Join(n.root(), "etc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := map[string]string{
		"hosts":       fmt.Sprintf("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t%s\n", n.name()),
		"hostname":    n.name() + "\n",
		"resolv.conf": "# The name server of this sandbox: it knows the hosts that the network policy allows.\nnameserver 127.0.0.1\n",
	}
	if n.Authorities != "" && !n.AuthoritiesDir {
		pem, err := os.ReadFile(n.Authorities)
		if err != nil {
			return errs.E(errs.Unavailable, "the host's certificate authorities cannot be read").Because(err)
		}
		files[authoritiesFile] = string(pem)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// tmpfs is a filesystem in memory, which the memory limit counts.
func tmpfs(to, mode string, bytes int64, options ...string) specs.Mount {
	return specs.Mount{
		Destination: to, Type: "tmpfs", Source: "tmpfs",
		Options: append([]string{"nosuid", "nodev", "mode=" + mode, "size=" + strconv.FormatInt(bytes, 10)}, options...),
	}
}

// write puts config.json into the bundle directory.
func (b bundle) write() error {
	data, err := json.MarshalIndent(b.spec(), "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(b.box.bundle(), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.box.bundle(), "config.json"), data, 0o600)
}

func capabilities(names ...string) *specs.LinuxCapabilities {
	return &specs.LinuxCapabilities{Bounding: names, Effective: names, Permitted: names}
}
