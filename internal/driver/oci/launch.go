package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/protobuf/encoding/protojson"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/driver/oci/cgroup"
	"github.com/cubbyhq/cubby/internal/driver/oci/memory"
	"github.com/cubbyhq/cubby/internal/driver/oci/pidfd"
	"github.com/cubbyhq/cubby/internal/driver/oci/thread"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/redirect"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// place is a thread on its way into a sandbox's cgroup. Moving it there takes
// the kernel some milliseconds for each hierarchy of version 1, in which the
// start does other things.
type place struct {
	thread  *thread.Thread
	entered chan error
}

func (d *Driver) takePlace(n note) (*place, error) {
	group := d.cgroups.Group(n.UID)
	if err := group.Create(n.hostLimits()); err != nil {
		return nil, err
	}
	p := &place{thread: thread.New(), entered: make(chan error, 1)}
	go func() { p.entered <- group.Enter(p.thread.TID) }()
	return p, nil
}

// hostLimits are what a sandbox's cgroup is bounded by.
func (n note) hostLimits() cgroup.Limits {
	l := cgroup.Limits{Memory: n.Limits.MemoryBytes, CPUs: n.Limits.CPUs, PIDs: n.Limits.PIDs}
	if n.Isolation == sandbox.GVisor {
		// A fork that the host refuses ends gVisor's kernel: the agent bounds
		// the number of processes inside, and the host what a kernel that was
		// taken over could take.
		l.Memory, l.PIDs = gvisorMemory(l.Memory), gvisorTasks(l.PIDs)
	}
	return l
}

// againEmpty ends what is in a sandbox's cgroup, which can be begun in again.
func (d *Driver) againEmpty(ctx context.Context, n note) error {
	group := d.cgroups.Group(n.UID)
	if err := group.Kill(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(d.box(n.UID).runtime()); err != nil {
		return err
	}
	return group.Create(n.hostLimits())
}

// start starts a command in the cgroup.
func (p *place) start(group cgroup.Group, cmd *exec.Cmd, before ...func() error) error {
	dir, err := group.Open()
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	return p.thread.Do(func() error {
		for _, f := range before {
			if err := f(); err != nil {
				return err
			}
		}
		if err := p.taken(); err != nil {
			return err
		}
		return cmd.Start()
	})
}

// runtimeEnv is the environment of a runtime.
func runtimeEnv() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
}

// taken returns when the thread is in the cgroup.
func (p *place) taken() error {
	err := <-p.entered
	p.entered <- err
	return err
}

func (p *place) leave() {
	_ = p.taken()
	p.thread.End()
}

// launch starts the runtime and returns the process that is the sandbox.
func (d *Driver) launch(ctx context.Context, n note, rec record, userns *os.File, place *place, from *memory.Memory) (*pidfd.Process, error) {
	b := d.box(n.UID)
	// Its namespace and its agent have to agree.
	redirected := n.Isolation == sandbox.Container && d.redirects()
	var boot []byte
	if from == nil { // the agent in a memory had its boot
		var err error
		if boot, err = protojson.Marshal(d.boot(n, rec.Secret, redirected)); err != nil {
			return nil, err
		}
	}
	_ = os.Remove(b.pidFile())
	_ = os.Remove(b.log())
	bun := d.bundle(n)
	verify := func() error { return nil }
	if from != nil { // all of it is read for that: whoever begins without a sentry after all has the answer
		verify = sync.OnceValue(from.Verify)
	}
	if k := d.takeSentry(bun, from); k != nil {
		err := d.become(ctx, k, bun, boot, from, verify)
		if err == nil {
			return d.begun(n)
		}
		if !errors.Is(err, errUnfit) {
			return nil, err
		}
		d.log.Warn("a sandbox begins without the kernel that was started ahead", "box", n.UID, "err", err)
		if err := d.againEmpty(ctx, n); err != nil {
			return nil, err
		}
	}
	var cmd *exec.Cmd
	var err error
	switch {
	case from != nil:
		cmd, err = d.restoreCommand(bun, *from)
	case n.Isolation == sandbox.GVisor:
		cmd, err = d.gvisorCommand(bun)
	default:
		if bun.network, err = d.network(redirected); err != nil {
			return nil, err
		}
		defer bun.network.Close()
		cmd, err = d.containerCommand(ctx, bun)
	}
	if err != nil {
		return nil, err
	}
	sound := func() error { return nil }
	if from != nil {
		if sound, err = openGate(cmd, verify); err != nil {
			return nil, err
		}
	}
	err = d.execute(ctx, cmd, bun, boot, userns, place)
	if unsound := sound(); unsound != nil {
		return nil, unsound
	}
	if err != nil {
		return nil, err
	}
	return d.begun(n)
}

// begun is the process that the runtime started.
func (d *Driver) begun(n note) (*pidfd.Process, error) {
	b, group := d.box(n.UID), d.cgroups.Group(n.UID)
	data, err := os.ReadFile(b.pidFile())
	if err != nil {
		return nil, errs.E(errs.Internal, "the runtime wrote no pid").Because(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return nil, errs.E(errs.Internal, "the runtime wrote a strange pid").Because(err)
	}
	if n.Isolation == sandbox.GVisor {
		// runsc does so for its kernel and not for its file servers.
		group.Score(d.oom)
	}
	p, err := pidfd.Open(pid, 0)
	if errors.Is(err, os.ErrProcessDone) || err == nil && !group.Contains(pid) {
		if err == nil {
			p.Close()
		}
		return nil, errs.E(errs.Unavailable, "the sandbox ended before its agent answered").Because(b.complaint())
	}
	return p, err
}

func (d *Driver) bundle(n note) bundle {
	return bundle{note: n, box: d.box(n.UID), cgroups: d.cgroups, nofile: d.nofile, oom: d.oom, sharedRoot: d.sharedDir(), root: n.Rootfs}
}

func (d *Driver) boot(n note, secret string, redirected bool) *guestv1.Boot {
	boot := &guestv1.Boot{
		Secret:       secret,
		Socket:       filepath.Join(driver.ChannelDir, "host.sock"),
		Hostname:     n.Hostname, // "" while it is nobody's: Identify replaces that
		Pids:         n.Limits.PIDs,
		Env:          n.Env,
		OpenFiles:    min(n.Limits.OpenFiles, int64(d.nofile)),
		EgressListen: egressListen,
	}
	if n.Isolation == sandbox.GVisor {
		boot.MemoryBytes, boot.InSandboxCgroup, boot.SetRedirect = n.Limits.MemoryBytes, true, true
	}
	if boot.GetSetRedirect() || redirected {
		boot.ResolverListen, boot.RedirectListen = resolverListen, fmt.Sprintf("127.0.0.1:%d", redirect.Port)
	}
	return boot
}

const (
	egressListen   = "127.0.0.1:3128" // where HTTP_PROXY of a sandbox points
	resolverListen = "127.0.0.1:53"   // the name server of its resolv.conf
)

func (d *Driver) gvisorCommand(b bundle) (*exec.Cmd, error) {
	if err := b.layGVisor(); err != nil {
		return nil, err
	}
	args := append(b.beginFlags(), "run", "--detach", "--bundle="+b.box.bundle(), "--pid-file="+b.box.pidFile())
	if _, err := os.Stat(b.box.saved()); err == nil {
		args = append(args, "--fs-restore-image-path="+b.box.saved())
	}
	return exec.Command(b.note.Runtime.Path, append(args, b.box.runID())...), nil
}

// restoreFlag has a memory count where the specification differs from that which it
// slept with: that is of a daemon of another version, or under another limit of open
// files.
const restoreFlag = "--restore-spec-validation=warning"

// restoreCommand is gvisorCommand for a run that comes out of a memory: by the
// program that wrote it, which reads it when its gate opens.
func (d *Driver) restoreCommand(b bundle, from memory.Memory) (*exec.Cmd, error) {
	if err := b.layGVisor(); err != nil {
		return nil, err
	}
	args := append(b.beginFlags(), restoreFlag, "wake", "--bundle="+b.box.bundle(), "--pid-file="+b.box.pidFile(),
		"--image-path="+from.Image(), "--gate=3", b.box.runID())
	return exec.Command(from.Program(), args...), nil
}

// openGate gives a restoreCommand its gate, which opens when the memory is
// verified. Call sound when the command has ended: it returns what the memory is
// not sound for.
func openGate(cmd *exec.Cmd, verify func() error) (sound func() error, err error) {
	gate, open, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{gate}
	verified := make(chan error, 1)
	go func() {
		err := verify()
		if err == nil {
			_, _ = open.Write([]byte{1}) // it may have ended of something else
		}
		_ = open.Close()
		verified <- err
	}()
	return func() error {
		_ = gate.Close()
		return <-verified
	}, nil
}

// layGVisor prepares the directories of a run.
func (b bundle) layGVisor() error {
	// What an earlier run left in these died with it; gVisor starts its own.
	for _, dir := range []string{b.overlayDir(), b.tmpDir()} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	return b.write()
}

func (d *Driver) containerCommand(ctx context.Context, b bundle) (*exec.Cmd, error) {
	// /tmp starts empty, as after a boot.
	if err := removeGuests(ctx, filepath.Join(b.note.root(), "upper/tmp")); err != nil {
		return nil, err
	}
	if err := b.note.overlayDirs(); err != nil {
		return nil, err
	}
	// Its paths are known only when the stage stands: see execute.
	return exec.Command(b.note.Runtime.Path), nil
}

// execute runs the runtime to its end, in the sandbox's cgroup, and gives the
// agent its boot message. The sandbox itself goes on.
func (d *Driver) execute(ctx context.Context, cmd *exec.Cmd, b bundle, boot []byte, userns *os.File, place *place) error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	// The sandbox inherits these: anything but /dev/null would be a way to
	// the host's disk or depend on this process.
	cmd.Stdin = in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = runtimeEnv()
	if userns != nil && b.note.Runtime.Kind == crun {
		b.userns = "/proc/self/fd/3" // a daemon's own would need the right to trace it
		cmd.ExtraFiles = []*os.File{userns}
	}
	err = place.start(d.cgroups.Group(b.note.UID), cmd, func() error {
		if b.note.Isolation != sandbox.Container {
			return nil
		}
		s, err := b.prepare(userns)
		if err != nil {
			return err
		}
		return b.staged(s, cmd)
	})
	_ = in.Close()
	if err != nil {
		return fmt.Errorf("start %s: %w", b.note.Runtime.Kind, err)
	}
	return b.failed(ctx, attend(ctx, cmd, cmd.Wait, out, boot))
}

// attend gives the agent its boot and returns when the runtime has ended.
func attend(ctx context.Context, cmd *exec.Cmd, wait func() error, out *os.File, boot []byte) error {
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = out.Write(boot)
		_ = out.Close()
	}()
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := wait()
	stop()
	if err != nil {
		_ = out.Close()
	}
	// The agent reads all of it before anything else; if it does not, the end
	// of the start's context breaks the write.
	stop = context.AfterFunc(ctx, func() { _ = out.Close() })
	<-written
	stop()
	return err
}

// failed says what is wrong with a start whose runtime ended with err; nil if nothing
// is.
func (b bundle) failed(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errs.E(errs.Timeout, "the sandbox took too long to start").Because(ctx.Err())
	case err != nil:
		return errs.E(errs.Unavailable, "the runtime did not start the sandbox").
			Because(fmt.Errorf("%s: %w: %w", b.note.Runtime.Kind, err, b.box.complaint()))
	}
	return nil
}

// staged completes a container's command with the paths of its stage.
func (b bundle) staged(s stage, cmd *exec.Cmd) error {
	b.root, b.sysfs, b.cgroup = s.path("rootfs"), s.path("sysfs"), s.path("cgroup")
	inside := b
	inside.note.Volumes = slices.Clone(b.note.Volumes)
	for i, v := range inside.note.Volumes {
		inside.note.Volumes[i].Dir = s.volume(v.Role)
	}
	inside.note.Init.Path = s.program(b.note)
	inside.box = box{uid: b.box.uid, dir: s.dir}
	if b.note.IDBase > 0 && b.note.Runtime.Kind == runc {
		inside.userns = s.path(usernsFile)
	}
	if err := inside.write(); err != nil {
		return err
	}
	args := []string{"--root=" + inside.box.runtime(), "--log=" + inside.box.bundle() + "/log", "--log-format=json"}
	if b.note.Runtime.Kind == crun {
		args = append(args, "--cgroup-manager=disabled")
		// So that nothing inside can write to the program through
		// /proc/PID/exe, crun would make a read-only mount of itself, or a
		// copy, and execute that. It is on one already; this says so, and
		// crun looks whether it is true.
		cmd.Path = s.path(crun)
		cmd.Env = append(cmd.Env, "_LIBCONTAINER_CLONED_BINARY=1")
	}
	args = append(args, "run", "--detach", "--bundle="+inside.box.bundle(), "--pid-file="+inside.box.bundle()+"/pid", string(b.note.UID))
	cmd.Args = append(cmd.Args[:1], args...)
	return nil
}

// complaint is what the runtime wrote to its log, for ours.
func (b box) complaint() error {
	data, err := os.ReadFile(b.log())
	if err != nil {
		return err
	}
	var last string
	for line := range strings.Lines(string(data)) {
		var entry struct{ Msg, Level string }
		if json.Unmarshal([]byte(line), &entry) == nil && (entry.Level == "error" || last == "") {
			last = entry.Msg
		}
	}
	if last == "" {
		return errors.New("no message")
	}
	return errors.New(last)
}
