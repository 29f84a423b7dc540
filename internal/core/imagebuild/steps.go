package imagebuild

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/core/environ"
	"github.com/cubbyhq/cubby/internal/core/gate"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/driver"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/image"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// The hosts of the public registries.
var (
	npmHosts = []string{"registry.npmjs.org"}
	pipHosts = []string{"pypi.org", "files.pythonhosted.org"}
)

// worker does the steps of one build in its sandbox.
type worker struct {
	*Builds
	run  *live.Run
	box  sandbox.Sandbox
	tell func(Output)
}

// step is one command and what it may reach.
type step struct {
	title string
	argv  []string
	hosts []string
	env   map[string]string
}

// steps runs all commands of a build, and stops at the first that fails.
func (w *worker) steps(ctx context.Context, p image.Prepared) error {
	for _, round := range p.Steps {
		for _, s := range w.commands(round) {
			if err := w.do(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// commands are the commands of a round of steps.
func (w *worker) commands(s image.Steps) []step {
	var list []step
	index := w.cfg.Indexes.InstallEnv()
	if len(s.NPM) > 0 {
		argv := []string{
			"npm", "install", "--global", "--prefix=/usr/local", "--cache=/tmp/.npm", "--omit=optional",
			"--no-audit", "--no-fund", "--no-update-notifier", "--no-progress", "--", //
		}
		list = append(list, step{title: firstLine("npm install " + strings.Join(s.NPM, " ")), argv: append(argv, s.NPM...), hosts: npmHosts, env: index})
	}
	if len(s.PIP) > 0 {
		argv := []string{
			"python3", "-m", "pip", "install", "--no-cache-dir", "--no-input", "--disable-pip-version-check",
			"--break-system-packages", "--root-user-action=ignore", "--progress-bar=off", "--",
		}
		list = append(list, step{title: firstLine("pip install " + strings.Join(s.PIP, " ")), argv: append(argv, s.PIP...), hosts: pipHosts, env: index})
	}
	for _, text := range s.Run {
		list = append(list, step{title: "run " + firstLine(text), argv: []string{"/bin/sh", "-euc", text}, hosts: s.Allow, env: index})
	}
	return list
}

func firstLine(text string) string {
	const most = 100
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > most {
		line, rest = strings.ToValidUTF8(line[:most], ""), "…"
	}
	if rest != "" {
		line += " …"
	}
	return line
}

// do runs one command to its end.
func (w *worker) do(ctx context.Context, s step) error {
	w.tell(Output{Progress: &image.Step{Stage: s.title}})
	w.allow(s.hosts)
	env := environ.ProxyVariables()
	maps.Copy(env, s.env)
	none := time.Duration(0) // the context ends it
	e, err := w.run.Begin(ctx, w.box, sandbox.ExecSpec{Argv: s.argv, Cwd: "/", Env: env, User: "root", Timeout: &none})
	if err != nil {
		return err
	}
	tail := w.follow(ctx, e.Snapshot().Seq)
	select {
	case <-e.Done():
	case <-w.run.Dead():
		return deathWhileBuilding(w.run.Death())
	case <-w.cfg.Gate.Ended():
		return gate.ErrShuttingDown()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return failure(s.title, e.Snapshot(), tail)
}

// allow gives the sandbox the policy of the next step, and ends what the last
// one left open.
func (w *worker) allow(hosts []string) {
	policy := sandbox.Policy{Mode: sandbox.NetworkNone}
	if len(hosts) > 0 {
		policy = sandbox.Policy{Mode: sandbox.NetworkAllowlist, Allow: hosts}
	}
	w.box.Spec.Network = policy
	w.run.SetSpec(w.box.Spec)
	w.cfg.PolicyChanged(w.box.UID)
	w.run.HangUp()
}

// tailBytes is what an error has of what a step printed last.
const tailBytes = 2000

// follow tells what an exec prints until its end, that of the sandbox or of ctx.
// It returns the end of it.
func (w *worker) follow(ctx context.Context, seq int64) string {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.run.Dead():
		case <-w.cfg.Gate.Ended():
		case <-ctx.Done():
		}
		cancel()
	}()
	var tail []byte
	for entry, err := range w.cfg.Journals.Read(ctx, w.box.UID, seq, 0, true) {
		if err != nil || entry.Exit != nil {
			break // what is wrong with the exec its end says
		}
		o := entry.Output
		if tail = append(tail, o.Data...); len(tail) > tailBytes {
			tail = append([]byte(nil), tail[len(tail)-tailBytes:]...)
		}
		w.tell(Output{Printed: &o})
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(tail), "\uFFFD"))
}

// failure is why a step failed; nil when it did not.
func failure(title string, x sandbox.Exec, tail string) error {
	exit := x.Exit
	switch {
	case exit == nil:
		return errs.E(errs.Internal, "a step ended without an end")
	case exit.Code != nil && *exit.Code == 0 && exit.Reason == sandbox.EndExited:
		return nil
	case exit.Reason == sandbox.EndExited && exit.Code != nil:
		e := errs.E(errs.Unsupported, "the step failed with exit code %d: %s", *exit.Code, title)
		if tail == "" {
			return e
		}
		return e.Hint("the end of what it printed:\n%s", tail)
	}
	why := string(exit.Reason)
	if exit.Message != "" {
		why += ": " + exit.Message
	}
	return errs.E(errs.Unsupported, "the step ended (%s): %s", why, title)
}

func deathWhileBuilding(d driver.Death) error {
	if d.Cause == driver.DeathOOM {
		return errs.E(errs.Unsupported, "the sandbox ran out of memory while the image was built")
	}
	return errs.E(errs.Unavailable, "the sandbox died while the image was built")
}

// export makes an image of the sandbox's root filesystem.
func (w *worker) export(ctx context.Context, p image.Prepared) (image.Image, error) {
	w.allow(nil)
	r, err := w.run.Guest.ArchiveSystem(ctx)
	if err != nil {
		return image.Image{}, fmt.Errorf("read the root filesystem: %w", err)
	}
	defer r.Close()
	return w.cfg.Images.ImportSystem(ctx, r, p, progress(w.tell))
}

func splitEnv(kv string) (name, value string) {
	name, value, _ = strings.Cut(kv, "=")
	return name, value
}

// labelValue is a name as far as a label can hold it.
func labelValue(name string) string {
	const most = 63
	return name[:min(len(name), most)]
}
