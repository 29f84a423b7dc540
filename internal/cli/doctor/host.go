package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/driver/oci"
	"github.com/cubbyhq/cubby/internal/driver/oci/network"
	"github.com/cubbyhq/cubby/internal/embedded"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/meminfo"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// host checks the kernel and what it lets us do.
func (d *doctor) host() {
	if os.Geteuid() == 0 {
		d.good("root", "yes")
	} else {
		d.fail("root", "cubby makes mounts, cgroups and namespaces", "sudo cubby doctor")
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		d.kernel(unix.ByteSliceToString(u.Release[:]))
	}
	d.cgroups("/sys/fs/cgroup")
	d.device("loop devices", "/dev/loop-control", "disks would have no hard size", "modprobe loop")
	modules := filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:]), "modules.dep")
	d.fileSystem("overlay", "container sandboxes need it", "/proc/filesystems", modules)
	d.fileSystem("ext4", "disks of sandboxes are ext4", "/proc/filesystems", modules)
	d.userNamespaces("/proc/sys/user/max_user_namespaces")
	d.redirects()
	d.shares("/proc/sys")
	d.fileLocks()
}

// fileLocks checks whether those of containers can be bounded.
func (d *doctor) fileLocks() {
	if os.Geteuid() != 0 {
		return // which was said
	}
	if err := oci.CountsFileLocks(); err != nil {
		p := errs.Public(err)
		d.warn("file locks", p.Message, p.Hint)
		return
	}
	d.good("file locks", "counted; a container holds at most %d", oci.MaxFileLocks)
}

// redirects checks whether programs in containers reach the network by
// themselves.
func (d *doctor) redirects() {
	if os.Geteuid() != 0 {
		return // which was said
	}
	if err := network.CanRedirect(); err != nil {
		p := errs.Public(err)
		d.warn("container network", p.Message, p.Hint)
		return
	}
	d.good("container network", "programs reach allowed hosts by name")
}

// shares checks what the kernel has once for the whole machine and no cgroup
// counts by sandbox: each sandbox gets a part of it.
func (d *doctor) shares(sysctls string) {
	read := func(name string) (uint64, bool) {
		data, err := os.ReadFile(filepath.Join(sysctls, name))
		if err != nil {
			return 0, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
		return n, err == nil
	}
	const manyPIDs, manyFiles = 1 << 17, 1 << 26
	if n, ok := read("kernel/pid_max"); ok && n < manyPIDs {
		d.warn("process ids", fmt.Sprintf("%d for the whole machine: a sandbox gets at most %d", n, n/4),
			"sysctl -w kernel.pid_max=4194304")
	} else if ok {
		d.good("process ids", "%d", n)
	}
	if n, ok := read("fs/file-max"); ok && n < manyFiles {
		d.warn("open files of all", fmt.Sprintf("%d for the whole machine: with 512 processes a container gets %d for each", n, max(4096, n/2/512)),
			"sysctl -w fs.file-max=9223372036854775807")
	} else if ok {
		d.good("open files of all", "%d", n)
	}
}

func (d *doctor) kernel(release string) {
	var major, minor int
	_, _ = fmt.Sscanf(release, "%d.%d", &major, &minor) // zero is old enough
	detail := release + ", " + runtime.GOARCH
	switch {
	case runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64":
		d.fail("kernel", detail+": gVisor runs on amd64 and arm64 only", "use another machine")
	case major < 5 || major == 5 && minor < 4:
		d.fail("kernel", detail+": too old", "use Linux 5.4 or newer")
	default:
		d.good("kernel", "%s", detail)
	}
}

// cgroups wants the controllers that hold sandboxes to their limits.
func (d *doctor) cgroups(root string) {
	wanted := []string{"memory", "cpu", "pids"}
	has := map[string]bool{}
	kind := "version 1"
	if data, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		kind = "version 2"
		for _, c := range strings.Fields(string(data)) {
			has[c] = true
		}
	} else {
		for _, c := range wanted {
			_, err := os.Stat(filepath.Join(root, c))
			has[c] = err == nil
		}
		if _, err := os.Stat(filepath.Join(root, "unified", "cgroup.procs")); err == nil {
			kind = "version 1, hybrid"
		}
	}
	var missing []string
	for _, c := range wanted {
		if !has[c] {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		d.fail("cgroups", fmt.Sprintf("%s without %s: those limits could not be enforced", kind, strings.Join(missing, ", ")),
			"enable the controllers, on most systems by booting with: cgroup_enable=memory swapaccount=1")
		return
	}
	d.good("cgroups", "%s with %s", kind, strings.Join(wanted, ", "))
}

// fileSystem wants one that the kernel has or loads when it is mounted.
func (d *doctor) fileSystem(name, why, filesystems, modules string) {
	data, err := os.ReadFile(filesystems)
	if err != nil {
		return
	}
	if strings.Contains(string(data), "\t"+name+"\n") {
		d.good(name, "in the kernel")
		return
	}
	data, err = os.ReadFile(modules)
	if err == nil && strings.Contains(string(data), "/"+name+".ko") {
		d.good(name, "a module, loaded when it is needed")
		return
	}
	d.fail(name, "not in the kernel: "+why, "modprobe "+name)
}

func (d *doctor) device(name, path, why, fix string) {
	if _, err := os.Stat(path); err != nil {
		d.warn(name, fmt.Sprintf("no %s: %s", path, why), fix)
		return
	}
	d.good(name, "%s", path)
}

func (d *doctor) userNamespaces(path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		d.warn("user namespaces", "not in this kernel: root in a container sandbox would be root's uid of the host", "use a kernel with CONFIG_USER_NS")
		return
	}
	if n, _ := strconv.Atoi(strings.TrimSpace(string(data))); n == 0 {
		d.warn("user namespaces", "switched off: root in a container sandbox would be root's uid of the host",
			"sysctl -w user.max_user_namespaces=15000")
		return
	}
	d.good("user namespaces", "on")
}

// programs checks what is called from outside, and what cubby carries.
func (d *doctor) programs(ctx context.Context) {
	for _, name := range []string{embedded.CubbyInit, embedded.Runsc} {
		if p, err := embedded.Open(name); err != nil {
			d.fail(name, "this cubby was built without it", "make build")
		} else {
			d.good(name, "carried, %s", format.Digest(p.Digest))
		}
	}
	crun, runc := version(ctx, "crun"), version(ctx, "runc")
	switch {
	case crun != "":
		d.good("crun", "%s", crun)
	case runc != "":
		d.warn("crun", "not installed; container sandboxes use runc, which is slower", "apt-get install -y crun")
	default:
		d.fail("crun", "neither crun nor runc is installed: no container sandboxes", "apt-get install -y crun")
	}
	if runc != "" {
		d.good("runc", "%s", runc)
	}
	d.program("mkfs.ext4", "disks could not be made", "e2fsprogs", true)
	d.program("mmdebstrap", "`cubby image build` needs it", "mmdebstrap", false)
}

func (d *doctor) program(name, why, pkg string, needed bool) {
	if path, err := lookProgram(name); err == nil {
		d.good(name, "%s", path)
		return
	}
	report := d.warn
	if needed {
		report = d.fail
	}
	report(name, "not installed: "+why, "apt-get install -y "+pkg)
}

// lookProgram also finds what is only in root's path.
func lookProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// version is the first line of what a program says of itself; "" when it is
// not there.
func version(ctx context.Context, name string) string {
	path, err := lookProgram(name)
	if err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return path + " (does not run)"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(line, name+" ")
}

// room checks memory, disk and open files.
func (d *doctor) room() {
	if m, err := meminfo.Read(); err == nil {
		n := m.Available
		const least, fine = 512 << 20, 2 << 30
		switch {
		case n < least:
			d.fail("memory", format.Size(n)+" available", "give the machine 2 GiB or more")
		case n < fine:
			d.warn("memory", format.Size(n)+" available: room for a few sandboxes", "give the machine 2 GiB or more")
		default:
			d.good("memory", "%s available", format.Size(n))
		}
	}
	d.disk("disk", d.Config.DataDir)
	if images := d.Config.Images(); !strings.HasPrefix(images, d.Config.DataDir+string(filepath.Separator)) {
		d.disk("disk of images", images)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		if limit.Max < 65536 {
			d.warn("open files", fmt.Sprintf("at most %d per process: commands in sandboxes get no more", limit.Max),
				"ulimit -Hn 1048576, or LimitNOFILE=1048576 in the systemd unit")
		} else {
			d.good("open files", "up to %d", limit.Max)
		}
	}
}

func (d *doctor) disk(name, dir string) {
	existing := dir
	for {
		if _, err := os.Stat(existing); err == nil || existing == filepath.Dir(existing) {
			break
		}
		existing = filepath.Dir(existing)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(existing, &s); err != nil {
		d.fail(name, fmt.Sprintf("%s: %v", dir, err), "choose another --data-dir")
		return
	}
	free := int64(s.Bavail) * s.Bsize
	switch {
	case free < 2<<30:
		d.fail(name, fmt.Sprintf("%s free at %s", format.Size(free), dir), "free some, or choose another --data-dir")
	case free < 10<<30:
		d.warn(name, fmt.Sprintf("%s free at %s", format.Size(free), dir), "10 GiB and more are comfortable")
	default:
		d.good(name, "%s free at %s", format.Size(free), dir)
	}
}

// images checks that there is something to start from.
func (d *doctor) images(ctx context.Context) {
	if list, err := d.Images(ctx); err == nil && list != nil {
		d.imagesThere(list)
		return
	}
	if _, err := os.Stat(d.Config.Images()); err != nil { // looking must not make it
		d.warn("images", "none in "+d.Config.Images(), "sudo cubby image build base")
		return
	}
	store, err := d.openImages()
	if err != nil {
		d.fail("images", err.Error(), "choose another --image-dir")
		return
	}
	list, err := store.List(ctx)
	if err != nil {
		d.fail("images", err.Error(), "choose another --image-dir")
		return
	}
	var names []string
	base := false
	for _, img := range list {
		switch {
		case img.Name == "": // waits to be swept
		case img.Damaged:
			d.fail("image "+img.Name, "damaged: it is not what was unpacked", fmt.Sprintf("cubby image rm %s, and build, pull or import it again", img.Name))
		default:
			if img.Outdated {
				d.warn("image "+img.Name, "older than its recipe", "sudo cubby image build "+img.Name)
			}
			names = append(names, img.Name)
			base = base || img.Name == "base"
		}
	}
	if !base {
		d.warn("images", fmt.Sprintf("no image \"base\" in %s (there: %s)", d.Config.Images(), cmp.Or(strings.Join(names, ", "), "none")),
			"sudo cubby image build base")
		return
	}
	d.good("images", "%s", strings.Join(names, ", "))
}

// imagesThere looks at the images of the daemon that was meant.
func (d *doctor) imagesThere(list []client.Image) {
	var names []string
	base := false
	for _, img := range list {
		switch {
		case img.Name == "": // waits to be swept
		case img.Damaged:
			d.fail("image "+img.Name, "damaged: "+cmp.Or(img.Problem, "it is not what was unpacked"), "cubby image rm "+img.Name+" on the daemon's machine, and build, pull or import it again")
		default:
			if img.Outdated {
				d.warn("image "+img.Name, "older than its recipe", "sudo cubby image build "+img.Name+" on the daemon's machine")
			}
			names = append(names, img.Name)
			base = base || img.Name == "base"
		}
	}
	where := d.Client.URL()
	if !base {
		d.warn("images", fmt.Sprintf("no image \"base\" at %s (there: %s)", where, cmp.Or(strings.Join(names, ", "), "none")),
			"sudo cubby image build base on the daemon's machine")
		return
	}
	d.good("images", "%s at %s", strings.Join(names, ", "), where)
}

func (d *doctor) daemon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := d.Client
	if err := c.Health(ctx); err != nil {
		fix := "sudo cubby serve, or: systemctl enable --now cubby"
		var e *client.Error
		if errors.As(err, &e) && e.Code != client.Unreachable && e.Hint != "" {
			fix = e.Hint
		}
		d.warn("daemon", err.Error(), fix)
		return
	}
	problems, err := c.Ready(ctx)
	switch {
	case err != nil:
		d.warn("daemon", err.Error(), "see its log")
	case len(problems) > 0:
		for _, p := range problems {
			d.fail("daemon", p.Part+": "+p.Message, cmp.Or(p.Hint, "see its log"))
		}
	default:
		d.good("daemon", "ready at %s", c.URL())
	}
	if _, _, err := c.ListPage(ctx, client.ListOptions{PageSize: 1}, ""); errors.Is(err, client.Unauthorized) {
		d.warn("token", "the daemon does not accept it", "set CUBBY_TOKEN to one of its tokens")
	}
	d.pool(ctx)
}

// pool tells what the daemon keeps ready. Who may not see its metrics hears nothing.
func (d *doctor) pool(ctx context.Context) {
	text, err := d.Client.Metrics(ctx)
	if err != nil {
		return
	}
	pools := telemetry.ReadPools(text)
	for _, p := range pools {
		kernel := "no kernel"
		if p.Kernel != "" {
			kernel = "a kernel for " + p.Kernel
		}
		d.good("pool", "%d of %d ready: %s, %s, %s", p.Ready, p.Wanted, p.Image, p.Isolation, kernel)
	}
	if len(pools) == 0 {
		d.good("pool", "nothing is kept ready")
	}
}
