package guest

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Start is a command to run.
type Start struct {
	sandbox.ExecSpec
	Env []string // KEY=VALUE, on top of the sandbox's and of ExecSpec.Env
}

// Started says that a command runs.
type Started struct {
	PID int64
	At  time.Time
}

// Exit ends the stream. All output ends at Offset.
type Exit struct {
	sandbox.Exit
	Offset int64
	At     time.Time
	// Outlived: the command was killed and some of its processes live on. See
	// [Client.KillTree].
	Outlived bool
}

// ExecMessage is one message of an exec's stream: exactly one field is set.
type ExecMessage struct {
	Started *Started
	Output  *sandbox.Output
	Exit    *Exit
}

// ExecInfo is an exec that the agent knows.
type ExecInfo struct {
	UID      sandbox.UID
	Finished bool
	Acked    int64
	Written  int64
	Service  *sandbox.ServiceRun // nil: no run of a service
}

// ExecStream is the output of one exec. It is for one reader.
type ExecStream struct {
	ctx    context.Context //nolint:containedctx // the stream's own, ended by Close
	cancel context.CancelFunc
	from   *connect.ServerStreamForClient[guestv1.ExecResponse]
	next   int64 // the offset that must come next
	ended  bool
}

// takesWithin bounds how long an agent may take to say what it can do.
const takesWithin = 5 * time.Second

// Takes is Unsupported when the agent lacks a capability that a command needs, so that
// none is begun that cannot be run. An agent that does not say so now is asked again by
// [Client.Exec].
func (c *Client) Takes(ctx context.Context, x sandbox.ExecSpec) error {
	ctx, cancel := context.WithTimeout(ctx, takesWithin)
	defer cancel()
	for _, needed := range x.Needs() {
		if err := c.Require(ctx, needed); errors.Is(err, errs.Unsupported) {
			return err
		}
	}
	return nil
}

// Exec starts a command and streams its output from an offset; with a nil
// start it attaches to one that is known, NotFound otherwise. A start that is
// sent twice runs once. Bytes before after are acknowledged. The stream ends
// with ctx, the command does not.
func (c *Client) Exec(ctx context.Context, uid sandbox.UID, start *Start, after int64) (*ExecStream, error) {
	req := &guestv1.ExecRequest{ExecUid: string(uid), After: after}
	if start != nil {
		req.Start = startMessage(start)
	}
	ctx, cancel := context.WithCancel(ctx)
	from, err := c.rpc.Exec(ctx, connect.NewRequest(req))
	if err != nil {
		err = fromWire(ctx, err)
		cancel()
		return nil, err
	}
	return &ExecStream{ctx: ctx, cancel: cancel, from: from, next: after}, nil
}

func startMessage(s *Start) *guestv1.ExecStart {
	m := &guestv1.ExecStart{
		Argv: s.Argv, Shell: s.Shell, Cwd: s.Cwd, User: s.User, Stdin: s.Stdin, Session: s.Session,
	}
	for _, k := range slices.Sorted(maps.Keys(s.ExecSpec.Env)) {
		m.Env = append(m.Env, k+"="+s.ExecSpec.Env[k])
	}
	m.Env = append(m.Env, s.Env...)
	if s.Service != nil {
		m.Service = &guestv1.ServiceRun{Name: s.Service.Name, Revision: string(s.Service.Revision)}
	}
	if s.Cell != nil {
		m.Cell = &guestv1.Cell{Kernel: s.Cell.Kernel, Language: s.Cell.Language, Code: s.Cell.Code}
	}
	if s.PTY != nil {
		m.Pty = sizeMessage(*s.PTY)
	}
	if s.Timeout != nil && *s.Timeout > 0 {
		m.Timeout = durationpb.New(*s.Timeout)
	}
	return m
}

func sizeMessage(w sandbox.WindowSize) *guestv1.WindowSize {
	return &guestv1.WindowSize{Cols: uint32(w.Cols), Rows: uint32(w.Rows)}
}

// Next returns the next message, and io.EOF after the exit. Offsets follow
// each other without a gap; an agent that breaks this is Unavailable, as is
// one that is lost: attach again with the offset reached.
func (s *ExecStream) Next() (ExecMessage, error) {
	if s.ended {
		return ExecMessage{}, io.EOF
	}
	for s.from.Receive() {
		switch e := s.from.Msg().GetEvent().(type) {
		case *guestv1.ExecResponse_Started:
			return ExecMessage{Started: &Started{PID: e.Started.GetPid(), At: timeOf(e.Started.GetAt())}}, nil
		case *guestv1.ExecResponse_Output:
			return s.output(e.Output)
		case *guestv1.ExecResponse_Exit:
			return s.exit(e.Exit)
		}
	}
	if err := s.from.Err(); err != nil {
		return ExecMessage{}, fromWire(s.ctx, err)
	}
	return ExecMessage{}, errs.E(errs.Unavailable, "the sandbox's agent ended a stream without an exit")
}

func (s *ExecStream) output(o *guestv1.ExecOutput) (ExecMessage, error) {
	out := sandbox.Output{Offset: o.GetOffset(), Data: o.GetData(), Time: timeOf(o.GetAt())}
	switch o.GetStream() {
	case guestv1.Stream_STREAM_STDOUT:
		out.Stream = sandbox.Stdout
	case guestv1.Stream_STREAM_STDERR:
		out.Stream = sandbox.Stderr
	case guestv1.Stream_STREAM_RICH:
		out.Stream = sandbox.Rich
	default:
		return ExecMessage{}, errs.E(errs.Unavailable, "the sandbox's agent named no stream")
	}
	if out.Offset != s.next {
		return ExecMessage{}, errs.E(errs.Unavailable, "the sandbox's agent sent offset %d, not %d", out.Offset, s.next)
	}
	s.next += int64(len(out.Data))
	return ExecMessage{Output: &out}, nil
}

func (s *ExecStream) exit(e *guestv1.ExecExit) (ExecMessage, error) {
	if e.GetOffset() != s.next {
		return ExecMessage{}, errs.E(errs.Unavailable, "the sandbox's agent ended at offset %d, not %d", e.GetOffset(), s.next)
	}
	s.ended = true
	// Reading on to the end lets the connection be used again.
	_ = s.from.Receive()
	code := int(e.GetCode())
	return ExecMessage{Exit: &Exit{
		Exit: sandbox.Exit{
			Code:    &code,
			Signal:  clean(e.GetSignal()),
			Reason:  reasonOf(e.GetReason()),
			Message: clean(e.GetMessage()),

			Exception: clean(e.GetException()),

			// Negative counts are nonsense.
			StdoutCut: max(e.GetStdoutCut(), 0),
			StderrCut: max(e.GetStderrCut(), 0),
			RichCut:   max(e.GetRichCut(), 0),
		},
		Offset:   e.GetOffset(),
		At:       timeOf(e.GetAt()),
		Outlived: e.GetOutlived(),
	}}, nil
}

// Close leaves the stream; the command goes on.
func (s *ExecStream) Close() error {
	s.cancel()
	_ = s.from.Close()
	return nil
}

var reasons = map[guestv1.ExitReason]sandbox.EndReason{
	guestv1.ExitReason_EXIT_REASON_EXITED:      sandbox.EndExited,
	guestv1.ExitReason_EXIT_REASON_TIMEOUT:     sandbox.EndTimeout,
	guestv1.ExitReason_EXIT_REASON_OOM:         sandbox.EndOOM,
	guestv1.ExitReason_EXIT_REASON_KILLED:      sandbox.EndKilled,
	guestv1.ExitReason_EXIT_REASON_NOT_STARTED: sandbox.EndNotRun,
	guestv1.ExitReason_EXIT_REASON_SHUTDOWN:    sandbox.EndStopped,
	guestv1.ExitReason_EXIT_REASON_KERNEL_DIED: sandbox.EndKernel,
	guestv1.ExitReason_EXIT_REASON_LOST:        sandbox.EndLost,
}

// reasonOf is EndLost for a reason that this version does not know.
func reasonOf(r guestv1.ExitReason) sandbox.EndReason {
	if reason, ok := reasons[r]; ok {
		return reason
	}
	return sandbox.EndLost
}

// reasonMessage is the way back. Reasons that an agent does not tell apart
// are kills to it: the host, which gave the reason, remembers it.
func reasonMessage(r sandbox.EndReason) guestv1.ExitReason {
	for m, reason := range reasons {
		if reason == r {
			return m
		}
	}
	if r == "" {
		return guestv1.ExitReason_EXIT_REASON_UNSPECIFIED
	}
	return guestv1.ExitReason_EXIT_REASON_KILLED
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t.CheckValid() != nil {
		return time.Time{}
	}
	return t.AsTime()
}

// Ack tells the agent that output before offset is safe on the host. The
// agent frees it; a command that waited for room goes on.
func (c *Client) Ack(ctx context.Context, uid sandbox.UID, offset int64) error {
	_, err := c.rpc.AckExec(ctx, connect.NewRequest(&guestv1.AckExecRequest{ExecUid: string(uid), Offset: offset}))
	return fromWire(ctx, err)
}

// Release makes the agent forget finished execs; unknown ones are skipped,
// WrongState when one still runs.
func (c *Client) Release(ctx context.Context, uids ...sandbox.UID) error {
	req := &guestv1.ReleaseExecRequest{}
	for _, uid := range uids {
		req.ExecUids = append(req.ExecUids, string(uid))
	}
	_, err := c.rpc.ReleaseExec(ctx, connect.NewRequest(req))
	return fromWire(ctx, err)
}

// List returns the execs that the agent knows.
func (c *Client) List(ctx context.Context) ([]ExecInfo, error) {
	res, err := c.rpc.ListExecs(ctx, connect.NewRequest(&guestv1.ListExecsRequest{}))
	if err != nil {
		return nil, fromWire(ctx, err)
	}
	var out []ExecInfo
	for _, e := range res.Msg.GetExecs() {
		uid, err := sandbox.ParseUID(e.GetExecUid())
		if err != nil {
			continue // not one of ours
		}
		info := ExecInfo{UID: uid, Finished: e.GetFinished(), Acked: e.GetAcked(), Written: e.GetWritten()}
		if run := e.GetService(); run != nil {
			info.Service = &sandbox.ServiceRun{Name: clean(run.GetName()), Revision: sandbox.UID(clean(run.GetRevision()))}
		}
		out = append(out, info)
	}
	return out, nil
}

// Signal signals the command's process group, or with tree everything that
// descends from it. reason, if any, is what the exit shall say if this ends
// the command. A tree kill returns when nothing of it is left.
func (c *Client) Signal(ctx context.Context, uid sandbox.UID, sig syscall.Signal, tree bool, reason sandbox.EndReason) error {
	_, err := c.rpc.SignalExec(ctx, connect.NewRequest(&guestv1.SignalExecRequest{
		ExecUid: string(uid), Signal: int32(sig), Tree: tree, Reason: reasonMessage(reason),
	}))
	return fromWire(ctx, err)
}

// KillTree kills everything that descends from the command. When the agent
// cannot do so within patience, outlived is true, and the host can: of the
// sandbox's processes, spare and what descends from them belong to others. It
// is what the agent says, so it is good for its own sandbox only.
func (c *Client) KillTree(ctx context.Context, uid sandbox.UID, reason sandbox.EndReason, patience time.Duration) (spare []int64, outlived bool, err error) {
	res, err := c.rpc.SignalExec(ctx, connect.NewRequest(&guestv1.SignalExecRequest{
		ExecUid: string(uid), Signal: int32(syscall.SIGKILL), Tree: true, Reason: reasonMessage(reason),
		Patience: durationpb.New(patience),
	}))
	if err != nil {
		return nil, false, fromWire(ctx, err)
	}
	return res.Msg.GetSpare(), res.Msg.GetOutlived(), nil
}

// Unkilled asks for what KillTree answers of all trees that the agent has been
// killing for longer than patience, those of kernels too.
func (c *Client) Unkilled(ctx context.Context, patience time.Duration) (spare []int64, outlived bool, err error) {
	res, err := c.rpc.Unkilled(ctx, connect.NewRequest(&guestv1.UnkilledRequest{Patience: durationpb.New(patience)}))
	if err != nil {
		return nil, false, fromWire(ctx, err)
	}
	return res.Msg.GetSpare(), res.Msg.GetOutlived(), nil
}

// WriteStdin writes at offset and returns the offset reached; bytes that were
// written already are skipped, so repeats are harmless. WrongState when the
// command reads no more.
func (c *Client) WriteStdin(ctx context.Context, uid sandbox.UID, offset int64, data []byte, eof bool) (int64, error) {
	res, err := c.rpc.WriteStdin(ctx, connect.NewRequest(&guestv1.WriteStdinRequest{
		ExecUid: string(uid), Offset: offset, Data: data, Eof: eof,
	}))
	if err != nil {
		return 0, fromWire(ctx, err)
	}
	return res.Msg.GetOffset(), nil
}

// Resize sets the size of the command's terminal; WrongState without one.
func (c *Client) Resize(ctx context.Context, uid sandbox.UID, size sandbox.WindowSize) error {
	_, err := c.rpc.ResizeExec(ctx, connect.NewRequest(&guestv1.ResizeExecRequest{ExecUid: string(uid), Size: sizeMessage(size)}))
	return fromWire(ctx, err)
}

// Shutdown ends every process, SIGTERM first and SIGKILL after grace, and then
// the agent.
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error {
	_, err := c.rpc.Shutdown(ctx, connect.NewRequest(&guestv1.ShutdownRequest{Grace: durationpb.New(grace)}))
	return fromWire(ctx, err)
}
