package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cubbyhq/cubby/internal/task"
)

const (
	// grace is how long an agent may take to stop when it is asked to.
	grace = 5 * time.Second
	// pushLimit is how long the host has to push.
	pushLimit = 2 * time.Minute
	// maxError bounds an error message, in bytes.
	maxError = 4 << 10
)

// Supervise is the main function of the verb [task.Verb]: it carries out the order
// that is in the environment and returns the exit status, which is 0 also when the
// task failed.
func Supervise() int { return supervise(grace) }

func supervise(grace time.Duration) int {
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(96 << 20)
	// Not ignored: that would be inherited.
	signal.Notify(make(chan os.Signal, 1), unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	order, err := task.TakeOrder()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	kids, err := newChildren()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	s := newSupervisor(order, kids, os.Environ(), home(), os.Stdout, os.Stderr)
	s.grace = grace
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM)
	go func() {
		for range terminate {
			s.stop()
		}
	}()
	go s.replies.read(os.Stdin)
	s.run()
	return 0
}

// home is the home of this process's user.
func home() string {
	if h := os.Getenv("HOME"); filepath.IsAbs(h) {
		return h
	}
	return "/"
}

// supervisor carries out one order.
type supervisor struct {
	order  task.Order
	kids   *children
	env    []string // the agent's
	home   string
	out    *recorder
	stderr io.Writer
	grace  time.Duration

	tell    *narrator
	replies *replies
	// work ends when the task is cancelled, with errCancelled.
	work context.Context
	stop func()

	result task.Result
	points *checkpoints // nil: there are none
	before state
}

func newSupervisor(order task.Order, kids *children, env []string, home string, out, stderr io.Writer) *supervisor {
	redact := newRedactor(env, order.Secrets)
	s := &supervisor{order: order, kids: kids, env: environment(env, order), home: home, stderr: stderr}
	s.out = newRecorder(out, redact, order.Output)
	s.tell = newNarrator(s.out, time.Now)
	work, stop := context.WithCancelCause(context.Background())
	s.work, s.stop = work, func() { stop(errCancelled) }
	s.replies = newReplies(s.out, s.stop)
	s.result = task.Result{ID: order.ID, FilesChanged: []string{}, BuildOK: true}
	return s
}

// run does all of it; the last record is the result.
func (s *supervisor) run() {
	started := time.Now().UTC()
	s.result.CreatedAt, s.result.StartedAt = started, started
	ctx, cancel := within(s.work, time.Duration(s.order.Seconds*float64(time.Second)), errTimeLimit)
	s.out.phase(task.PhaseStarting, s.result.Checkpoint)
	err := s.prepare()
	if err != nil {
		s.fail(task.ReasonInternal, err)
	} else {
		s.out.phase(task.PhaseCheck, s.result.Checkpoint)
		s.checkpoint(ctx)
		s.out.phase(task.PhaseAgent, s.result.Checkpoint)
		s.agent(ctx)
	}
	cancel()
	s.diffs()
	if s.work.Err() == nil && err == nil {
		s.verify()
	}
	s.conclude(started)
}

// prepare makes the directory and the files that the agent needs.
func (s *supervisor) prepare() error {
	if !filepath.IsAbs(s.order.Cwd) {
		return fmt.Errorf("%.200q is no absolute path", s.order.Cwd)
	}
	if len(s.order.Agent.Command) == 0 {
		return errors.New("the agent has no command")
	}
	if err := os.MkdirAll(s.order.Cwd, 0o755); err != nil {
		return err
	}
	for _, f := range s.order.Agent.Files {
		if err := s.write(f); err != nil {
			return err
		}
	}
	return nil
}

// write writes a file of settings, whole or not at all.
func (s *supervisor) write(f task.File) error {
	below, ok := strings.CutPrefix(f.Path, "~/")
	if !ok || !filepath.IsLocal(below) {
		return fmt.Errorf("%.200q is not below the home", f.Path)
	}
	at := filepath.Join(s.home, below)
	if _, err := os.Stat(at); f.Keep && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	part := at + ".cubby-part"
	if err := os.WriteFile(part, []byte(f.Content), 0o600); err != nil {
		return err
	}
	return os.Rename(part, at)
}

// checkpoint keeps the files as they are. A task goes on without.
func (s *supervisor) checkpoint(ctx context.Context) {
	points, err := openCheckpoints(s.kids, s.env, s.home, s.order.Cwd)
	if err == nil {
		s.result.Checkpoint, s.before, err = points.take(ctx, s.order.ID)
	}
	if err != nil {
		s.result.CheckpointMessage = s.bounded("no checkpoint: " + err.Error())
		return
	}
	s.points = points
	s.result.CheckpointMessage = s.bounded(s.before.lacks())
}

// agent runs the agent and judges how it went.
func (s *supervisor) agent(ctx context.Context) {
	if ctx.Err() == nil {
		t, err := s.converse(ctx)
		if err != nil {
			t.err = err
		}
		s.result.Session, s.result.StopReason = t.session, t.stopReason
		var heard bool
		s.result.FinalMessage, s.result.Tokens, heard = s.tell.summary()
		if t.err == nil && ctx.Err() == nil {
			t.err = verdict(t.stopReason, heard)
		}
		t.err = t.explain()
		if t.err == nil && ctx.Err() == nil {
			s.result.Status = task.Succeeded
			return
		}
		if ctx.Err() == nil {
			s.fail(task.ReasonAgent, t.err)
			s.tell.fault(s.result.ErrorMessage)
			return
		}
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeLimit):
		s.fail(task.ReasonTimeout, fmt.Errorf("the agent was ended after its time limit of %s", time.Duration(s.order.Seconds*float64(time.Second))))
	default:
		s.result.Status, s.result.FailureReason = task.Cancelled, task.ReasonCancelled
	}
}

// errSilent is the end of a turn in which nothing happened.
var errSilent = errors.New("the agent did nothing and said nothing")

// explain adds what the agent printed on standard error to an error that says too
// little.
func (t turn) explain() error {
	var status *exec.ExitError
	if (errors.Is(t.err, errSilent) || errors.Is(t.err, errAgentEnded) || errors.As(t.err, &status)) && t.stderr != "" {
		return fmt.Errorf("%w\n%s", t.err, t.stderr)
	}
	return t.err
}

// verdict is why a turn that ended by itself is a failure; nil when it is none.
func verdict(stopReason string, heard bool) error {
	switch stopReason {
	case "end_turn", "":
		if !heard {
			return errSilent
		}
		return nil
	case "max_tokens":
		return errors.New("the agent stopped: the model's limit of tokens is reached")
	case "max_turn_requests":
		return errors.New("the agent stopped: its limit of requests to the model is reached")
	case "refusal":
		return errors.New("the agent refused to go on")
	case "cancelled":
		return errors.New("the agent says that it was cancelled, which it was not")
	}
	return fmt.Errorf("the agent stopped for an unknown reason: %.100q", stopReason)
}

// converse starts the agent and speaks with it until its work is done or ctx ends.
// What the agent leaves running goes on, unless it had to be ended by force.
func (s *supervisor) converse(ctx context.Context) (turn, error) {
	def := s.order.Agent
	protocol := def.Protocol == task.ACP
	command := def.Command
	if !protocol {
		prompt, err := s.argument()
		if err != nil {
			return turn{}, err
		}
		command = append(command[:len(command):len(command)], prompt)
	}
	a, err := startAgent(s.kids, command, s.env, s.order.Cwd, protocol, s.out.redact, s.stderr, s.grace)
	if err != nil {
		return turn{}, err
	}
	defer a.out.Close()
	done := make(chan turn, 1)
	var ask func() // to stop
	if protocol {
		c := &client{order: s.order, tell: s.tell, replies: s.replies}
		c.connect(ctx, a.in, a.out)
		ask = c.cancel
		go func() { done <- c.converse() }()
	} else {
		ask = func() { _ = syscall.Kill(-a.cmd.Process.Pid, syscall.SIGINT) }
		go func() { done <- readJSONLines(a, s.tell) }()
	}
	var t turn
	select {
	case t = <-done:
	case <-ctx.Done():
		ask()
		timer := time.NewTimer(s.grace)
		defer timer.Stop()
		select {
		case t = <-done:
		case <-timer.C:
			a.kill()
			t = <-done
		}
	}
	s.replies.dismiss()
	a.finish()
	t.stderr = strings.TrimSpace(a.stderr.String())
	if errors.Is(t.err, errAgentEnded) && a.err != nil {
		t.err = fmt.Errorf("%w: %w", t.err, a.err)
	}
	return t, nil
}

// diffs finds what the agent changed.
func (s *supervisor) diffs() {
	if s.points == nil {
		return
	}
	after, err := s.points.snapshot(context.Background())
	var diffs []task.Diff
	if err == nil {
		diffs, err = s.points.compare(context.Background(), s.before.tree, after.tree, s.out.redact)
	}
	if err != nil {
		s.result.CheckpointMessage = s.bounded(strings.TrimSpace(s.result.CheckpointMessage + "\nthe changes are not known: " + err.Error()))
		return
	}
	for i := range diffs {
		s.result.FilesChanged = append(s.result.FilesChanged, diffs[i].Path)
		s.out.record(task.DiffType, &diffs[i])
	}
}

// verify checks build and health, and has the host push.
func (s *supervisor) verify() {
	s.out.phase(task.PhaseBuild, s.result.Checkpoint)
	if command := buildCommand(s.order.Cwd, s.env); command != nil {
		build := checkBuild(s.work, s.kids, command, s.env, s.order.Cwd, s.out.redact)
		s.out.record(task.BuildType, &build)
		s.result.BuildOK, s.result.BuildMessage = build.OK, build.Message
	}
	if s.work.Err() != nil {
		return
	}
	s.out.phase(task.PhaseHealth, s.result.Checkpoint)
	h := checkHealth(s.work, s.order, s.result.FilesChanged, s.replies)
	s.result.PreviewStatus, s.result.PreviewMessage = h.status, h.message
	if s.order.Push && s.result.Status == task.Succeeded && s.work.Err() == nil {
		s.push()
	}
}

func (s *supervisor) push() {
	ctx, cancel := within(s.work, pushLimit, errTimeLimit)
	defer cancel()
	acted, ok := s.replies.act(ctx, task.ActPush)
	push := task.Push{OK: acted.OK, Message: acted.Message}
	switch {
	case !ok:
		push.Message = "no answer to the request to push"
	case acted.Push != nil:
		push = *acted.Push
	}
	push.Message = s.bounded(push.Message)
	s.out.record(task.PushType, &push)
	s.result.Push = &push
}

// conclude prints the result.
func (s *supervisor) conclude(started time.Time) {
	if s.work.Err() != nil && s.result.FailureReason == "" {
		s.result.Status, s.result.FailureReason = task.Cancelled, task.ReasonCancelled
	}
	s.result.FinishedAt = time.Now().UTC()
	s.result.DurationMS = time.Since(started).Milliseconds()
	s.out.record(task.DoneType, &s.result)
}

func (s *supervisor) fail(reason string, err error) {
	s.result.Status, s.result.FailureReason, s.result.ErrorMessage = task.Failed, reason, s.bounded(err.Error())
}

// bounded is a message for the result.
func (s *supervisor) bounded(text string) string {
	return head(s.out.redact.text(strings.ToValidUTF8(text, "\uFFFD")), maxError)
}
