package terminal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/cubbyhq/cubby/internal/core/live"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

const (
	// readLimit bounds a message of a client.
	readLimit = 256 << 10
	// pieceSize bounds what is read of a message at once, and a text.
	pieceSize = 16 << 10
	// pendingLimit bounds what a client has typed and the program not taken.
	// What is more than freePending counts as memory of the caller, in steps,
	// twice: a buffer that grows has the old one beside it.
	pendingLimit  = 1 << 20
	freePending   = 4 << 10
	pendingStep   = 64 << 10
	pendingWeight = 2
	// writeTimeout is how long a client may take for one message of output.
	writeTimeout = 30 * time.Second
	// A client that is gone without a word is noticed by pings.
	pingEvery   = 20 * time.Second
	pingTimeout = 20 * time.Second
)

// session is one connection.
type session struct {
	door *Door
	conn *websocket.Conn
	view *live.Viewer

	mu      sync.Mutex
	inputs  []input  // what was typed and not passed on; guarded by mu
	pending int      // bytes of inputs; guarded by mu
	held    int      // bytes of pending that are charged; guarded by mu
	release []func() // of held; guarded by mu
	more    chan struct{}
}

// input is keys or, when data is nil, a new size.
type input struct {
	data []byte
	size sandbox.WindowSize
}

// verdict is why a connection is closed by the daemon.
type verdict struct {
	code   websocket.StatusCode
	reason string
}

func (v *verdict) Error() string { return v.reason }

func newSession(d *Door, conn *websocket.Conn, v *live.Viewer) *session {
	conn.SetReadLimit(readLimit)
	return &session{door: d, conn: conn, view: v, more: make(chan struct{}, 1)}
}

// serve returns when the connection is closed and nothing of it runs.
func (s *session) serve(parent context.Context) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	stop := context.AfterFunc(s.door.life, func() {
		cancel(&verdict{websocket.StatusGoingAway, "the daemon is stopping; come back with the offset"})
	})
	defer stop()

	var parts sync.WaitGroup
	// Reading has the parent's context: to end one's context breaks the
	// connection, and nothing could be said any more.
	parts.Go(func() { cancel(s.receive(parent)) })
	parts.Go(func() { cancel(s.pass(ctx)) })
	parts.Go(func() { cancel(s.ping(ctx)) })
	parts.Go(func() { cancel(s.show(ctx)) })

	<-ctx.Done()
	var v *verdict
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &v):
		_ = s.conn.Close(v.code, v.reason) // the client may be gone
	case errors.Is(cause, errClientGone):
		_ = s.conn.CloseNow() // as above
	default:
		s.door.log.ErrorContext(parent, "serve a terminal", "name", s.view.Name, "err", cause)
		_ = s.conn.Close(websocket.StatusInternalError, errs.Public(cause).Message) // as above
	}
	parts.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uncharge()
}

// errClientGone: the connection broke, or the client closed it.
var errClientGone = errors.New("the client went away")

// receive reads messages until the client is gone or has sent what is none.
func (s *session) receive(ctx context.Context) error {
	piece := make([]byte, pieceSize)
	for {
		kind, message, err := s.conn.Reader(ctx)
		if err != nil {
			return errClientGone
		}
		if kind == websocket.MessageText {
			err = s.receiveSize(ctx, message)
		} else {
			err = s.receiveKeys(ctx, message, piece)
		}
		switch {
		case errors.Is(err, websocket.ErrMessageTooBig):
			return &verdict{websocket.StatusMessageTooBig, "a message is too long"}
		case err != nil:
			return err
		}
	}
}

// receiveSize reads a message of text.
func (s *session) receiveSize(ctx context.Context, message io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(message, pieceSize+1))
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig) || len(data) > pieceSize:
		return websocket.ErrMessageTooBig
	case err != nil:
		return errClientGone
	}
	size, err := parseText(data)
	if err != nil {
		return &verdict{websocket.StatusInvalidFramePayloadData, errs.Public(err).Message}
	}
	return s.put(ctx, input{size: size})
}

// receiveKeys passes a message of keys on as it comes, through a buffer.
func (s *session) receiveKeys(ctx context.Context, message io.Reader, piece []byte) error {
	for {
		n, err := message.Read(piece)
		if n > 0 {
			if err := s.put(ctx, input{data: bytes.Clone(piece[:n])}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, websocket.ErrMessageTooBig):
			return err
		case err != nil:
			return errClientGone
		}
	}
}

// errNotTaken: too much waits for the program.
var errNotTaken = &verdict{websocket.StatusPolicyViolation, "the program does not take its input"}

// put keeps an input for pass, which may wait for the program. It is a verdict
// when there is no room. Of sizes that wait the last one counts.
func (s *session) put(ctx context.Context, in input) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.inputs) - 1
	if s.pending+len(in.data) > pendingLimit {
		return errNotTaken
	}
	if err := s.charge(ctx, s.pending+len(in.data)); err != nil {
		return &verdict{websocket.StatusTryAgainLater, errs.Public(err).Message}
	}
	switch {
	case last >= 0 && in.data == nil && s.inputs[last].data == nil:
		s.inputs[last] = in
	case last >= 0 && in.data != nil && s.inputs[last].data != nil:
		s.inputs[last].data = append(s.inputs[last].data, in.data...)
	default:
		s.inputs = append(s.inputs, in)
	}
	s.pending += len(in.data)
	select {
	case s.more <- struct{}{}:
	default:
	}
	if len(s.inputs) > maxInputs {
		return errNotTaken
	}
	return nil
}

// charge counts so many bytes that wait as memory of the caller. s.mu is held.
func (s *session) charge(ctx context.Context, pending int) error {
	for s.door.memory != nil && pending-freePending > s.held {
		release, err := s.door.memory.Hold(ctx, pendingStep*pendingWeight)
		if err != nil {
			return err
		}
		s.release, s.held = append(s.release, release), s.held+pendingStep
	}
	return nil
}

// uncharge ends what charge began. s.mu is held.
func (s *session) uncharge() {
	for _, release := range s.release {
		release()
	}
	s.release, s.held = nil, 0
}

// maxInputs bounds how many keys and sizes alternate while the program waits.
const maxInputs = 4096

func (s *session) take() []input {
	s.mu.Lock()
	defer s.mu.Unlock()
	inputs := s.inputs
	s.inputs = nil
	return inputs
}

// pass hands inputs on, in order.
func (s *session) pass(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.more:
		}
		for _, in := range s.take() {
			var err error
			if in.data == nil {
				err = s.view.Resize(ctx, in.size)
			} else {
				err = s.view.Write(ctx, in.data)
			}
			s.mu.Lock()
			if s.pending -= len(in.data); s.pending == 0 {
				s.uncharge()
			}
			s.mu.Unlock()
			// What comes after the end of the program is nobody's fault, and
			// an agent that does not answer is told by the output.
			if err != nil && !errors.Is(err, errs.WrongState) && !errors.Is(err, errs.Unavailable) {
				return err
			}
		}
	}
}

func (s *session) ping(ctx context.Context) error {
	t := time.NewTicker(pingEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		pong, cancel := context.WithTimeout(ctx, pingTimeout)
		err := s.conn.Ping(pong)
		cancel()
		if err != nil {
			return errClientGone
		}
	}
}

// show sends the output and, as the last message, the end.
func (s *session) show(ctx context.Context) error {
	v := s.view
	if err := s.say(ctx, attached{Type: "attached", Name: v.Name, Seq: v.Seq, Offset: v.Offset, New: v.New}); err != nil {
		return err
	}
	at := v.Offset
	for entry, err := range v.Output(ctx) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errs.Unavailable):
			return &verdict{websocket.StatusGoingAway, errs.Public(err).Message}
		case err != nil:
			return err
		case entry.Exit != nil:
			if err := s.say(ctx, exitMessage(*entry.Exit)); err != nil {
				return err
			}
			return &verdict{websocket.StatusNormalClosure, "the program has ended"}
		}
		o := entry.Output
		if o.Offset > at {
			if err := s.say(ctx, skipped{Type: "skipped", Bytes: o.Offset - at, Offset: o.Offset}); err != nil {
				return err
			}
		}
		at = o.Offset + int64(len(o.Data))
		if err := s.send(ctx, websocket.MessageBinary, o.Data); err != nil {
			return err
		}
	}
	return errs.E(errs.Internal, "the output ended before the program")
}

func (s *session) say(ctx context.Context, m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return s.send(ctx, websocket.MessageText, b)
}

// send gives a client time to take a message. One that does not is gone.
func (s *session) send(ctx context.Context, kind websocket.MessageType, b []byte) error {
	// Not the session's context: the daemon's last word would be cut off in
	// the middle of a message.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if s.conn.Write(ctx, kind, b) != nil {
		return errClientGone
	}
	return nil
}
