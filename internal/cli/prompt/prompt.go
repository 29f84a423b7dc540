// Package prompt is the conversation of "cubby code" with a kernel on a terminal:
// it edits lines and keeps their history, asks the kernel whether a cell goes on,
// how code can be completed and what a name is, and runs cells. What cells show is
// printed by package render. A prompt starts no sandbox and ends no kernel.
package prompt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/edit"
	"github.com/cubbyhq/cubby/internal/cli/render"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// Options is whom a prompt talks to, and through what.
type Options struct {
	Client  *client.Client
	Request client.CodeRequest // of every cell, but for the code
	// Show is how cells are shown; the prompt says where to. Its Box is the
	// sandbox.
	Show   render.Options
	TTY    *os.File // the terminal, which the prompt puts into raw mode
	Stdin  io.Reader
	Stdout io.Writer
	Getenv func(string) string
	// Signals makes handle see all signals of the process until giveBack.
	Signals func(handle func(os.Signal)) (giveBack func())
}

// prompt is a conversation with a kernel on a terminal in raw mode.
type prompt struct {
	client   *client.Client
	id       string
	request  client.CodeRequest // of every cell, but for the code
	language string
	show     *render.Printer
	edit     *edit.Editor
	// interrupts brings SIGINTs that come as signals; Ctrl-C comes as a key.
	interrupts chan struct{}
}

// Run talks to a kernel until Ctrl-D. It makes the kernel when there is none.
func Run(ctx context.Context, o Options) error {
	// An empty cell makes the kernel, or says why there is none.
	ready, err := o.Client.RunCode(ctx, o.Show.Box, o.Request)
	if err == nil && !ready.Success {
		err = ready.Err()
	}
	if err != nil {
		return err
	}
	p := &prompt{client: o.Client, id: o.Show.Box, request: o.Request, language: ready.Language, interrupts: make(chan struct{}, 1)}
	p.request.Kernel, p.request.Language, p.request.Stdin = ready.Kernel, ready.Language, true
	p.edit = edit.New(edit.ReadKeys(o.Stdin), o.Stdout, edit.OpenHistory(o.Getenv, "code_history"))
	show := o.Show
	show.Out, show.ErrOut, show.WholeLines = p.edit, p.edit, true
	show.Note = func(format string, args ...any) { fmt.Fprintf(p.edit, "cubby: "+format+"\n", args...) }
	p.show = render.New(show)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	giveBack := o.Signals(func(sig os.Signal) {
		if sig != os.Interrupt {
			cancel()
			return
		}
		select {
		case p.interrupts <- struct{}{}:
		default:
		}
	})
	defer giveBack()
	size := func() *client.WindowSize { return tty.Size(o.Stdout, o.Stdin) }
	restore, err := tty.Raw(ctx, o.TTY, size, func(_ context.Context, size client.WindowSize) error {
		return p.edit.Resize(size)
	})
	if err != nil {
		return err
	}
	defer restore()
	if err := p.edit.Resize(*size()); err != nil {
		return err
	}
	defer p.edit.Pasting()()
	fmt.Fprintf(p.edit, "%s, kernel %s of %s; Tab completes, ?name explains, Ctrl-C interrupts, Ctrl-D and exit leave\n", ready.Language, ready.Kernel, p.id)
	return p.loop(ctx)
}

// loop reads cells and runs them.
func (p *prompt) loop(ctx context.Context) error {
	for {
		code, err := p.read(ctx)
		switch {
		case errors.Is(err, edit.ErrInterrupted):
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprintln(p.edit)
			return nil
		case err != nil:
			return err
		case strings.TrimSpace(code) == "":
			continue
		case leaves(p.language, code):
			p.show.Note("the kernel lives on with its state; `cubby kernels rm %s %s` ends it", p.id, p.request.Kernel)
			return nil
		}
		if name, detail := helpFor(p.language, code); name != "" && p.help(ctx, name, detail) {
			continue
		}
		if err := p.run(ctx, code); err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return err
			}
			p.show.Note("%v", err)
		}
	}
}

// read reads a cell, of one line or several.
func (p *prompt) read(ctx context.Context) (string, error) {
	first, more := "> ", "+ "
	if p.language == "python" {
		first, more = ">>> ", "... "
	}
	var lines []string
	ask := first
	for {
		line, pasted, err := p.edit.Line(ctx, ask, p.completion(ctx, lines))
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
		code := strings.Join(lines, "\n")
		name, _ := helpFor(p.language, code)
		if !pasted && (name != "" || leaves(p.language, code) || !p.goesOn(ctx, lines)) {
			return code, nil
		}
		ask = more
	}
}

// answered is what was typed for a question of a cell.
type answered struct {
	line string
	err  error
}

// run runs a cell and shows it. Its errors are of the connection.
func (p *prompt) run(ctx context.Context, code string) error {
	r := p.request
	r.Code = code
	cell, err := p.client.StartCode(ctx, p.id, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type shown struct {
		client.CodeOutput
		err error
	}
	outputs := make(chan shown)
	go func() {
		defer close(outputs)
		for o, err := range cell.StreamCode(ctx, 0) {
			select {
			case outputs <- shown{o, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	stdin := cell.Stdin(ctx)
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	var answers chan answered // not nil while the user answers a question
	interrupt := func() {
		go func() { _ = cell.Cancel(ctx) }() // the stream reports the end
	}
	for {
		keys := p.edit.Keys.Pieces()
		if answers != nil {
			keys = nil // the editor has them
		}
		select {
		case o, ok := <-outputs:
			switch {
			case !ok:
				return ctx.Err()
			case o.err != nil:
				return o.err
			case o.Input != nil && answers == nil:
				answers = make(chan answered, 1)
				go p.answer(asking, *o.Input, answers)
			case o.Done != nil:
				if answers != nil {
					stopAsking()
					<-answers
				}
				p.show.End(*o.Done)
				return nil
			default:
				if err := p.show.Output(cell.Seq, o.CodeOutput); err != nil {
					return err
				}
			}
		case got := <-answers:
			answers = nil
			p.show.Keep()
			switch {
			case got.err == nil:
				_, err := io.WriteString(stdin, got.line+"\n")
				p.feedFailed(err)
			case errors.Is(got.err, io.EOF):
				p.feedFailed(stdin.Close())
			default:
				interrupt()
			}
		case piece, ok := <-keys:
			if !ok {
				interrupt()
				return io.EOF
			}
			if p.edit.Keys.Hold(piece) {
				interrupt()
			}
		case <-p.interrupts:
			interrupt()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *prompt) answer(ctx context.Context, q client.InputRequest, to chan<- answered) {
	var a answered
	if q.Password {
		a.line, a.err = p.edit.Password(ctx, q.Prompt)
	} else {
		a.line, a.err = p.edit.Answer(ctx, q.Prompt, "")
	}
	to <- a
}

// feedFailed: that the cell has ended meanwhile is nobody's mistake.
func (p *prompt) feedFailed(err error) {
	if err != nil && !errors.Is(err, client.WrongState) && !errors.Is(err, client.NotFound) {
		p.show.Note("the answer was not handed on: %v", err)
	}
}
