package chat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/internal/cli/edit"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// conversation is how a chat is shown on a terminal.
type conversation struct {
	tty    *os.File // which is put into raw mode
	in     io.Reader
	out    io.Writer
	colors bool
	show   *shown
	first  agent.RunRequest // what is asked at first
	once   bool             // and nothing more
}

// talk is a conversation that goes on.
type talk struct {
	*chat

	edit    *edit.Editor
	screen  *screen
	tty     *os.File
	restore func()                 // of the terminal
	raw     func() (func(), error) // makes it raw again
	images  []agent.Image          // that belong to the next message

	// drawing is held by who draws: the conversation, except while it reads a line.
	drawing sync.Mutex
}

// ctrlO shows the newest call.
const ctrlO = 0x0f

// maxLine is how long a line is that the editor takes; it drops the rest.
const maxLine = 4096

// converse talks until Ctrl-D, or asks one question.
func (s *chat) converse(ctx context.Context, o conversation) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &talk{chat: s, tty: o.tty, edit: edit.New(edit.ReadKeys(o.in), o.out, edit.OpenHistory(s.env.getenv, "chat_history"))}
	size := func() *client.WindowSize { return tty.Size(o.out, o.in) }
	t.screen = &screen{
		out: t.edit, colors: o.colors, files: o.show,
		columns: func() int { return size().Cols }, rows: func() int { return size().Rows },
	}
	s.view, s.keys = t.screen, t.edit.Keys
	if s.decide == nil {
		s.decide = t.ask
	}
	t.edit.OnKey(func(key rune) bool {
		if key != ctrlO {
			return false
		}
		t.drawing.Lock() // a line is being read
		defer t.drawing.Unlock()
		t.showCall()
		return true
	})
	giveBack := s.env.Signals(func(sig os.Signal) {
		if sig == os.Interrupt {
			s.interrupt()
		} else {
			cancel()
		}
	})
	defer giveBack()
	t.raw = func() (func(), error) {
		restore, err := tty.Raw(ctx, o.tty, size, func(_ context.Context, size client.WindowSize) error { return t.resize(size) })
		if err != nil {
			return nil, err
		}
		return restore, t.edit.Resize(*size())
	}
	t.drawing.Lock()
	defer t.drawing.Unlock()
	var err error
	if t.restore, err = t.raw(); err != nil {
		return err
	}
	defer func() { t.restore() }()
	defer t.edit.Pasting()()
	if s.named {
		if there, err := t.meant(ctx); err != nil || !there {
			return err
		}
	}
	if o.once {
		s.state.keep(s.thread)
		return s.exit(s.turn(ctx, o.first))
	}
	return t.loop(ctx)
}

// resize fits what is on the screen to another size of it: at once while a line is read,
// else with what is drawn next.
func (t *talk) resize(size client.WindowSize) error {
	if !t.drawing.TryLock() {
		t.screen.resized.Store(true)
		return t.edit.Resize(size)
	}
	defer t.drawing.Unlock()
	return errors.Join(t.edit.Resize(size), t.screen.redraw())
}

// meant asks whether a thread that the user has named and that does not exist is to
// begin. False: it is not.
func (t *talk) meant(ctx context.Context) (bool, error) {
	there, err := t.exists(ctx)
	if err != nil || there {
		return there, err
	}
	line, err := t.answer(ctx, fmt.Sprintf("there is no thread %s; begin it? (y/n) ", format.Printable(t.thread)), "")
	if errors.Is(err, edit.ErrInterrupted) || errors.Is(err, io.EOF) {
		return false, nil
	}
	return word(line, []string{"approve", "reject"}) == "approve", err
}

// loop reads messages and commands.
func (t *talk) loop(ctx context.Context) error {
	if err := t.open(ctx); err != nil {
		return err
	}
	for {
		text, err := t.read(ctx)
		switch {
		case errors.Is(err, edit.ErrInterrupted):
			t.screen.say("Ctrl-D or /exit leaves")
			continue
		case errors.Is(err, io.EOF):
			_ = t.screen.write("\n") // there is nobody to complain to
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(text) == "":
			continue
		}
		if name, argument, ok := command(text); ok {
			leave, err := t.command(ctx, name, argument)
			if leave {
				return err
			}
			t.report(err)
			continue
		}
		t.state.keep(t.thread)
		select {
		case <-t.interrupts: // it was meant for the turn before
		default:
		}
		r := agent.RunRequest{Text: text, Images: t.images}
		t.images = nil
		if err := t.outcome(ctx, t.turn(ctx, r)); err != nil {
			return err
		}
	}
}

// outcome says how a turn ended. It is an error when the conversation ends with it.
func (t *talk) outcome(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errOpen):
		t.screen.tools.forget()
		t.screen.say("the question stays open: /answer asks it again")
	case errors.Is(err, errCancelled):
		t.screen.say("the turn was cancelled")
	case errors.Is(err, io.EOF):
		return err
	default:
		t.report(err)
	}
	return nil
}

// report shows an error, and what to do.
func (t *talk) report(err error) {
	if err == nil {
		return
	}
	text := "cubby: " + err.Error()
	var e *client.Error
	if errors.As(err, &e) && e.Hint != "" {
		text += "\n  " + strings.ReplaceAll(e.Hint, "\n", "\n  ")
	}
	_ = t.screen.line(red, text) // a terminal that is gone: the next read tells
}

// open says where the conversation goes on, and asks what the thread waits with.
func (t *talk) open(ctx context.Context) error {
	th, err := t.agent.Thread(ctx, t.thread)
	switch {
	case errors.Is(err, client.NotFound):
		t.screen.say("a new thread; /help lists commands, Ctrl-C ends a turn, Ctrl-D leaves")
		return nil
	case err != nil:
		return err
	}
	t.screen.say("thread %s: %s", th.ID, title(th))
	t.screen.say("/new begins another; /help lists commands, Ctrl-C ends a turn, Ctrl-D leaves")
	if th.Status == agent.Busy {
		t.screen.say("it is at work on an earlier message")
	}
	return t.answerWaiting(ctx, th.Waiting())
}

// answerOpen asks what the thread waits with.
func (t *talk) answerOpen(ctx context.Context) error {
	th, err := t.agent.Thread(ctx, t.thread)
	if err != nil && !errors.Is(err, client.NotFound) {
		return err
	}
	waiting := th.Waiting()
	if err != nil || len(waiting) == 0 {
		t.screen.say("the agent has asked nothing")
		return nil
	}
	return t.answerWaiting(ctx, waiting)
}

func (t *talk) answerWaiting(ctx context.Context, waiting []agent.Interrupt) error {
	if len(waiting) == 0 {
		return nil
	}
	r, err := t.answers(ctx, waiting)
	if err == nil {
		err = t.turn(ctx, r)
	}
	return t.outcome(ctx, err)
}

// title is what a thread is about.
func title(t agent.Thread) string {
	if t.Values == nil || len(t.Values.Messages) == 0 {
		return "no messages"
	}
	for _, m := range t.Values.Messages {
		if text := brief(m.Text()); m.Type == agent.Human && text != "" {
			return "“" + text + "”, " + counted(len(t.Values.Messages))
		}
	}
	return counted(len(t.Values.Messages))
}

func counted(messages int) string {
	if messages == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", messages)
}

// read reads a message: a line, or more if it was pasted or a line ends with a
// backslash.
func (t *talk) read(ctx context.Context) (string, error) {
	var lines []string
	prompt := "> "
	for {
		t.drawing.Unlock()
		line, pasted, err := t.edit.Line(ctx, prompt, completion)
		t.drawing.Lock()
		if err != nil {
			return "", err
		}
		t.screen.typed(prompt + line)
		if utf8.RuneCountInString(line) >= maxLine {
			t.screen.say("the line was cut after %d characters: give longer text with a pipe, cubby chat PROMPT < file", maxLine)
		}
		more := pasted
		if !pasted && strings.HasSuffix(line, `\`) {
			line, more = strings.TrimSuffix(line, `\`), true
		}
		if lines = append(lines, line); !more {
			return strings.Join(lines, "\n"), nil
		}
		prompt = "… "
	}
}

// showCall prints the newest call of a tool with all that it was given and gave.
func (t *talk) showCall() {
	if c := t.screen.tools.newest(); c != nil {
		_ = t.screen.line("", c.whole()) // a terminal that is gone: the next read tells
		return
	}
	t.screen.say("no tool was used yet")
}

// table prints rows.
func (t *talk) table(head []string, rows [][]string) error {
	var b strings.Builder
	if err := format.Table(&b, head, rows); err != nil {
		return err
	}
	return t.screen.line("", b.String())
}
