package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/internal/cli/edit"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// ask asks the user what the agent asks.
func (t *talk) ask(ctx context.Context, i agent.Interrupt) (any, error) {
	q, ok := i.Question()
	if !ok {
		t.screen.say("the run waits for an answer: %s", format.Printable(string(i.Value)))
		line, err := t.answer(ctx, "answer: ", "")
		return line, leftOpen(err)
	}
	var list []agent.Decision
	for _, a := range q.Actions {
		d, err := t.review(ctx, a, q.Reviews)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	return agent.Decisions(list...), nil
}

// leftOpen makes of Ctrl-C and Ctrl-D the end of the turn. What was asked stays open.
func leftOpen(err error) error {
	if errors.Is(err, edit.ErrInterrupted) || errors.Is(err, io.EOF) {
		return errOpen
	}
	return err
}

// answer reads an answer, which begins with text.
func (t *talk) answer(ctx context.Context, prompt, text string) (string, error) {
	t.drawing.Unlock()
	defer t.drawing.Lock()
	return t.edit.Answer(ctx, prompt, text)
}

// review asks about one call.
func (t *talk) review(ctx context.Context, a agent.Action, reviews []agent.Review) (agent.Decision, error) {
	allowed := []string{"approve", "edit", "reject"}
	for _, r := range reviews {
		if r.Action == a.Name && len(r.Allowed) > 0 {
			allowed = r.Allowed
		}
	}
	head := a.Description
	if head == "" {
		head = "the agent wants to use " + a.Name
	}
	if err := t.screen.line(bold, format.Printable(head)); err != nil {
		return agent.Decision{}, err
	}
	if err := t.screen.line("", a.Name+"\n"+fields(string(a.Args))); err != nil {
		return agent.Decision{}, err
	}
	for {
		line, err := t.answer(ctx, strings.Join(allowed, ", ")+"? ", "")
		if err != nil {
			return agent.Decision{}, leftOpen(err)
		}
		d, err := t.decision(ctx, a, word(line, allowed))
		switch {
		case errors.Is(err, errOpen) || ctx.Err() != nil:
			return d, err
		case err != nil:
			t.report(err)
		case d.Type != "":
			t.screen.tools.decided(a, d)
			return d, nil
		}
	}
}

// word is the decision that a line means: its name or the beginning of it, or y and n.
func word(line string, allowed []string) string {
	text := strings.ToLower(strings.TrimSpace(line))
	switch text {
	case "":
		return ""
	case "y", "yes":
		text = "approve"
	case "n", "no":
		text = "reject"
	}
	i := slices.IndexFunc(allowed, func(name string) bool { return strings.HasPrefix(name, text) })
	if i < 0 {
		return ""
	}
	return allowed[i]
}

// decision completes a decision. One without a type is none yet.
func (t *talk) decision(ctx context.Context, a agent.Action, kind string) (agent.Decision, error) {
	d := agent.Decision{Type: kind}
	var err error
	switch kind {
	case "reject":
		d.Message, err = t.answer(ctx, "why, for the agent (or nothing): ", "")
	case "respond":
		d.Message, err = t.answer(ctx, "what the agent is told instead: ", "")
	case "edit":
		var args json.RawMessage
		if args, err = t.editArgs(ctx, a.Args); err == nil {
			d.Edited = &agent.Edited{Name: a.Name, Args: args}
		}
	}
	return d, leftOpen(err)
}

// longestEdited is how long arguments are that can be edited on a line, in bytes.
const longestEdited = 2048

// editArgs lets the user change arguments: in their editor, or on a line.
func (t *talk) editArgs(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	editor := t.env.getenv("VISUAL")
	if editor == "" {
		editor = t.env.getenv("EDITOR")
	}
	var text string
	var err error
	if editor != "" {
		text, err = t.inEditor(ctx, editor, args)
	} else {
		var line bytes.Buffer
		if json.Compact(&line, args) != nil || line.Len() > longestEdited {
			return nil, fmt.Errorf("the arguments have %d bytes, which is too much for a line: set EDITOR to edit them", len(args))
		}
		text, err = t.answer(ctx, "arguments as JSON: ", line.String())
	}
	if err != nil {
		return nil, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return nil, errors.New("that is no JSON object")
	}
	return json.RawMessage(text), nil
}

// inEditor gives the terminal to an editor until it has ended.
func (t *talk) inEditor(ctx context.Context, editor string, args json.RawMessage) (string, error) {
	f, err := os.CreateTemp("", "cubby-*.json")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	var pretty bytes.Buffer
	if json.Indent(&pretty, args, "", "  ") != nil {
		pretty.Write(args)
	}
	pretty.WriteByte('\n')
	_, err = f.Write(pretty.Bytes())
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return "", err
	}
	takeBack, err := t.edit.Keys.Lend()
	if err != nil {
		return "", err
	}
	defer takeBack()
	t.restore()
	words := strings.Fields(editor)
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], f.Name())...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = t.tty, t.tty, t.tty
	ran := cmd.Run()
	restore, err := t.raw()
	if err != nil {
		return "", err
	}
	t.restore = restore
	if ran != nil {
		return "", fmt.Errorf("%s: %w", words[0], ran)
	}
	text, err := os.ReadFile(f.Name())
	return string(text), err
}
