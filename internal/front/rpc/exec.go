package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	sandboxv1 "github.com/cubbyhq/cubby/api/gen/sandbox/v1"
	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	execTimeout   = 30 * time.Second  // of an Exec that names none
	streamTimeout = 300 * time.Second // of an ExecStream whose call has no deadline
	pipTimeout    = 120 * time.Second
	// noCode is agentbox's exit code of a command that did not end by itself.
	noCode = -1
)

// Exec implements the service.
func (d *Door) Exec(ctx context.Context, req *connect.Request[sandboxv1.ExecRequest]) (*connect.Response[sandboxv1.ExecResponse], error) {
	in := req.Msg
	timeout := execTimeout
	switch {
	case in.GetTimeout() < 0:
		return nil, errs.E(errs.Invalid, "timeout: not negative")
	case in.GetTimeout() > 0:
		timeout = time.Duration(in.GetTimeout()) * time.Second
	}
	return d.run(ctx, req.Header(), in.GetSessionId(), sandbox.ExecSpec{Shell: in.GetCommand(), Cwd: in.GetWorkdir(), Timeout: &timeout})
}

// run runs a command to its end, which the caller's leaving brings about.
func (d *Door) run(ctx context.Context, head http.Header, id string, spec sandbox.ExecSpec) (*connect.Response[sandboxv1.ExecResponse], error) {
	res, err := d.core.Execs().Run(ctx, id, spec, -1, live.OutputCaps{Stdout: maxText, Stderr: maxText})
	if err != nil {
		if ctx.Err() != nil && res.Exec.Seq > 0 {
			d.abandon(ctx, id, res.Exec.Seq)
		}
		if d.unknownSession(ctx, id, err) {
			return connect.NewResponse(&sandboxv1.ExecResponse{ExitCode: noCode, Stderr: missing(err)}), nil
		}
		return nil, err
	}
	for _, stream := range []struct {
		text *[]byte
		cut  *int64
	}{{&res.Stdout, &res.StdoutCut}, {&res.Stderr, &res.StderrCut}} {
		switch err := d.weigh(ctx, head, *stream.text); {
		case errors.Is(err, errs.TooLarge):
			most := maxText / 2 // whatever it is
			if isJSON(head) {
				most = maxText / 6
			}
			*stream.cut += int64(len(*stream.text) - most)
			*stream.text = (*stream.text)[:most]
		case err != nil:
			return nil, err
		}
	}
	out := &sandboxv1.ExecResponse{Stdout: text(res.Stdout), Stderr: text(res.Stderr)}
	out.ExitCode, out.TimedOut = exitCode(res.Exec.Exit)
	if out.TimedOut {
		out.Stderr = withLine(out.Stderr, "Command timed out")
	} else if x := res.Exec.Exit; x.Reason != sandbox.EndExited {
		out.Stderr = withLine(out.Stderr, reason(x))
	}
	if cut := res.StdoutCut + res.StderrCut; cut > 0 {
		out.Stderr = withLine(out.Stderr, fmt.Sprintf("cubby: %d bytes of output are not part of this answer", cut))
	}
	return connect.NewResponse(out), nil
}

// weigh counts what a text takes in a call's answer beyond its length: bytes that
// are not UTF-8 become characters of three, and in JSON control characters take
// six times their length. It is TooLarge beyond what the answer may have.
func (d *Door) weigh(ctx context.Context, head http.Header, text []byte) error {
	more := replaced(text)
	n, held := int64(len(text))+more, more
	if isJSON(head) {
		n = sandbox.TextBytes(text) + more
		held = n
	}
	if n > maxText+maxText/4 {
		return errs.E(errs.TooLarge, "the text takes %d bytes in the answer, more than %d", n, maxText).
			Hint("ask for it as protobuf, or with the REST API")
	}
	return d.core.ChargeRead(ctx, held)
}

func isJSON(head http.Header) bool { return strings.Contains(head.Get("Content-Type"), "json") }

// replaced is how many bytes longer [text] makes b.
func replaced(b []byte) (more int64) {
	if utf8.Valid(b) {
		return 0
	}
	for invalid := false; len(b) > 0; {
		r, size := utf8.DecodeRune(b)
		switch {
		case r != utf8.RuneError || size > 1:
			invalid = false
		case invalid: // the whole run becomes one character
			more--
		default:
			invalid = true
			more += int64(len("\uFFFD")) - 1
		}
		b = b[size:]
	}
	return more
}

// abandon ends a command whose caller left: agentbox's callers can neither
// find it again nor end it.
func (d *Door) abandon(ctx context.Context, id string, seq int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	if _, err := d.core.Execs().Cancel(ctx, id, seq); err != nil && errs.KindOf(err) == errs.Internal {
		d.log.ErrorContext(ctx, "end a command whose caller left", "seq", seq, "err", err)
	}
}

// unknownSession reports that a command was refused because there is no such
// session, which no other mistake in the request hides.
func (d *Door) unknownSession(ctx context.Context, id string, err error) bool {
	if errors.Is(err, errs.Invalid) {
		_, err = d.core.Sandboxes().Get(ctx, id)
		return unknown(err)
	}
	return errors.Is(err, errs.NotFound)
}

func exitCode(x *sandbox.Exit) (code int32, timedOut bool) {
	switch {
	case x.Reason == sandbox.EndTimeout:
		return noCode, true
	case x.Code == nil:
		return noCode, false
	}
	return int32(*x.Code), false
}

// reason says why a command did not end by itself.
func reason(x *sandbox.Exit) string {
	if x.Message != "" {
		return "cubby: " + x.Message
	}
	return "cubby: the command did not end by itself: " + string(x.Reason)
}

func withLine(s, line string) string {
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s + line
}

// text is bytes as a protobuf string, which is UTF-8.
func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// ExecStream implements the service. Output is sent when it comes; a character
// that comes in two pieces is sent whole.
func (d *Door) ExecStream(ctx context.Context, req *connect.Request[sandboxv1.ExecStreamRequest], to *connect.ServerStream[sandboxv1.ExecStreamResponse]) error {
	in, limit := req.Msg, streamLimit(ctx)
	x, err := d.core.Execs().Start(ctx, in.GetSessionId(), sandbox.ExecSpec{Shell: in.GetCommand(), Cwd: in.GetWorkdir(), Timeout: &limit})
	if err != nil {
		if d.unknownSession(ctx, in.GetSessionId(), err) {
			return to.Send(&sandboxv1.ExecStreamResponse{Type: "error", Data: missing(err)})
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	var pieces [4]characters // by stream
	for entry, err := range d.core.Execs().Output(ctx, in.GetSessionId(), x.Seq, 0, true) {
		if err != nil {
			return d.left(ctx, in.GetSessionId(), x.Seq, err)
		}
		if entry.Exit != nil {
			for _, stream := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
				if rest := pieces[stream].rest(); rest != "" {
					if err := to.Send(&sandboxv1.ExecStreamResponse{Type: stream.String(), Data: rest}); err != nil {
						return d.left(ctx, in.GetSessionId(), x.Seq, err)
					}
				}
			}
			return to.Send(streamEnd(entry.Exit))
		}
		whole := pieces[entry.Output.Stream&3].whole(entry.Output.Data)
		if whole == "" {
			continue
		}
		if err := to.Send(&sandboxv1.ExecStreamResponse{Type: entry.Output.Stream.String(), Data: whole}); err != nil {
			return d.left(ctx, in.GetSessionId(), x.Seq, err)
		}
	}
	return d.left(ctx, in.GetSessionId(), x.Seq, errs.E(errs.Unavailable, "the stream ended early"))
}

// streamLimit is the time limit of a command whose request cannot name one:
// the caller's deadline is.
func streamLimit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return streamTimeout
	}
	return min(max(time.Until(deadline), time.Millisecond), sandbox.MaxDuration)
}

// left ends the command of a stream that nobody follows any more; a daemon
// that stops lets it go on.
func (d *Door) left(ctx context.Context, id string, seq int64, err error) error {
	if d.life.Err() != nil {
		return errs.E(errs.Unready, "the daemon is stopping")
	}
	d.abandon(ctx, id, seq)
	return err
}

func streamEnd(x *sandbox.Exit) *sandboxv1.ExecStreamResponse {
	code, timedOut := exitCode(x)
	switch {
	case timedOut:
		return &sandboxv1.ExecStreamResponse{Type: "error", Data: "Command timed out"}
	case x.Reason != sandbox.EndExited && x.Reason != sandbox.EndNotRun:
		return &sandboxv1.ExecStreamResponse{Type: "error", Data: reason(x)}
	}
	return &sandboxv1.ExecStreamResponse{Type: "exit", ExitCode: &code}
}

// characters keeps the beginning of a character until its end comes.
type characters struct{ begun []byte }

// whole returns the whole characters of what came so far.
func (c *characters) whole(data []byte) string {
	data = slices.Concat(c.begun, data)
	end := len(data)
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if b := data[len(data)-i]; utf8.RuneStart(b) {
			if b >= utf8.RuneSelf && !utf8.FullRune(data[len(data)-i:]) {
				end = len(data) - i
			}
			break
		}
	}
	c.begun = data[end:]
	return text(data[:end])
}

// rest is what never became a character.
func (c *characters) rest() string { return text(c.begun) }

// requirement is a package as agentbox takes it: a name, extras in brackets, a
// version; no spaces, and nothing that pip could take for an option or a URL.
var requirement = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._,-]+\])?(?:(?:===|==|~=|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]+(?:,(?:==|~=|!=|<=|>=|<|>)[A-Za-z0-9.*+!_-]+)*)?$`)

// PipInstall implements the service.
func (d *Door) PipInstall(ctx context.Context, req *connect.Request[sandboxv1.PipInstallRequest]) (*connect.Response[sandboxv1.ExecResponse], error) {
	in := req.Msg
	refused := func(why string) (*connect.Response[sandboxv1.ExecResponse], error) {
		return connect.NewResponse(&sandboxv1.ExecResponse{ExitCode: noCode, Stderr: why}), nil
	}
	b, err := d.session(ctx, in.GetSessionId())
	if unknown(err) {
		return refused(errs.Public(err).Message)
	}
	if err != nil {
		return nil, err
	}
	hosts := info(b).GetAllowedHosts()
	named := slices.Contains(hosts, "pypi.org") && slices.Contains(hosts, "files.pythonhosted.org")
	if !named && b.Spec.Network.Mode != sandbox.NetworkOpen {
		return refused("pip install requires pypi.org and files.pythonhosted.org in allowed_hosts")
	}
	if len(in.GetPackages()) == 0 {
		return refused("no packages are named")
	}
	argv := []string{"python3", "-m", "pip", "install", "--no-input", "--disable-pip-version-check"}
	if b.Spec.User != sandbox.UserRoot {
		// Root's own directory is not on the PATH; /usr/local/bin is.
		argv = append(argv, "--user")
	}
	argv = append(argv, "--")
	for _, p := range in.GetPackages() {
		if !requirement.MatchString(p) {
			return refused("Invalid package specifier: " + p)
		}
		argv = append(argv, p)
	}
	timeout := pipTimeout
	return d.run(ctx, req.Header(), in.GetSessionId(), sandbox.ExecSpec{Argv: argv, Timeout: &timeout})
}
