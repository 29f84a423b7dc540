package chat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/agent"
	"github.com/cubbyhq/cubby/client/settings"
	"github.com/cubbyhq/cubby/internal/cli/edit"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// slash are the commands of a conversation.
var slash = []struct{ name, argument, help string }{
	{"/new", "", "begin a new thread"},
	{"/threads", "", "list the threads, and go on with one of them"},
	{"/answer", "", "answer what the agent has asked and waits for"},
	{"/model", "[NAME]", "say which model answers, list them, or choose another"},
	{"/files", "[PATH]", "list the files of the thread's sandboxes"},
	{"/sandbox", "", "list the thread's sandboxes"},
	{"/image", "FILE", "put an image beside the next message"},
	{"/show", "", "show all of the newest call of a tool, as Ctrl-O does"},
	{"/help", "", "list the commands"},
	{"/exit", "", "leave, as Ctrl-D does"},
}

// command reads a line that is a command: one of those, or what people type to leave.
// A path is none.
func command(text string) (name, argument string, ok bool) {
	line := strings.TrimSpace(text)
	switch line {
	case "exit", "quit", "q", "/quit", "/q":
		return "/exit", "", true
	}
	name, argument, _ = strings.Cut(line, " ")
	if !strings.HasPrefix(name, "/") || strings.Contains(name[1:], "/") || strings.Contains(line, "\n") {
		return "", "", false
	}
	return name, strings.TrimSpace(argument), true
}

// completion completes the name of a command.
func completion(line string, pos int) (string, int) {
	if !strings.HasPrefix(line, "/") || pos != len(line) {
		return line, pos
	}
	found := ""
	for _, c := range slash {
		switch {
		case !strings.HasPrefix(c.name, line):
		case found != "":
			return line, pos
		default:
			found = c.name
		}
	}
	if found == "" {
		return line, pos
	}
	return found + " ", len(found) + 1
}

// command does what a command says. leave: the conversation ends.
func (t *talk) command(ctx context.Context, name, argument string) (leave bool, err error) {
	switch name {
	case "/exit":
		return true, nil
	case "/new":
		t.thread, t.images = newThread(), nil
		t.state.keep(t.thread)
		t.screen.say("a new thread")
	case "/threads":
		return false, t.threads(ctx)
	case "/answer":
		return false, t.answerOpen(ctx)
	case "/model":
		return false, t.models(ctx, argument)
	case "/files":
		return false, t.listFiles(ctx, cmp.Or(argument, "."))
	case "/sandbox", "/sandboxes":
		return false, t.sandboxes(ctx)
	case "/image":
		image, err := readImage(argument)
		if err == nil {
			t.images = append(t.images, image)
			t.screen.say("it goes with the next message")
		}
		return false, err
	case "/show":
		t.showCall()
	case "/help":
		rows := make([][]string, len(slash))
		for i, c := range slash {
			rows[i] = []string{strings.TrimSpace(c.name + " " + c.argument), c.help}
		}
		return false, t.table(nil, rows)
	default:
		return false, fmt.Errorf("no command %s; /help lists them", format.Printable(name))
	}
	return false, nil
}

// listed is how many threads are offered.
const listed = 20

// threads lets the user pick one.
func (t *talk) threads(ctx context.Context) error {
	list, err := t.agent.Threads(ctx, agent.ThreadQuery{Limit: listed})
	if err != nil {
		return err
	}
	if len(list) == 0 {
		t.screen.say("there are no threads yet")
		return nil
	}
	now := time.Now()
	rows := make([][]string, len(list))
	for i, th := range list {
		mark := ""
		if th.ID == t.thread {
			mark = "*"
		}
		rows[i] = []string{strconv.Itoa(i+1) + mark, format.Age(th.UpdatedAt, now), string(th.Status), title(th)}
	}
	if err := t.table([]string{"", "USED", "STATUS", "ABOUT"}, rows); err != nil {
		return err
	}
	line, err := t.answer(ctx, "number, or nothing to stay: ", "")
	if errors.Is(err, edit.ErrInterrupted) || errors.Is(err, io.EOF) || err == nil && strings.TrimSpace(line) == "" {
		return nil // the list is closed; at the end of the input the next line says so again
	}
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || n < 1 || n > len(list) {
		return fmt.Errorf("there is no thread %s", format.Printable(line))
	}
	t.thread = list[n-1].ID
	t.state.keep(t.thread)
	return t.open(ctx)
}

// models says which model is used, or takes another one.
func (t *talk) models(ctx context.Context, name string) error {
	if name != "" {
		t.model = name
		t.screen.say("%s answers from now on", format.Printable(name))
		return nil
	}
	set := settings.New(t.c)
	used := t.model
	if used == "" {
		if now, err := set.Get(ctx); err == nil && now.Effective.Model != nil {
			used = *now.Effective.Model
		}
	}
	list, err := set.Models(ctx, "")
	if err != nil {
		if used != "" {
			t.screen.say("%s answers", format.Printable(used))
		}
		return err
	}
	rows := make([][]string, 0, len(list.Models))
	for _, m := range list.Models {
		mark := ""
		if m.ID == used {
			mark = "*"
		}
		rows = append(rows, []string{m.ID + mark, m.Name})
	}
	for _, provider := range slices.Sorted(maps.Keys(list.Errors)) {
		rows = append(rows, []string{provider, list.Errors[provider]})
	}
	if err := t.table([]string{"MODEL", ""}, rows); err != nil {
		return err
	}
	t.screen.say("%s answers; /model NAME takes another one", format.Printable(cmp.Or(used, "no model")))
	return nil
}

// boxes are the sandboxes that the thread works in.
func (t *talk) boxes(ctx context.Context) ([]client.Sandbox, error) {
	if t.sandbox != "" {
		box, err := t.c.Get(ctx, t.sandbox)
		return []client.Sandbox{box}, err
	}
	var list []client.Sandbox
	for box, err := range t.c.List(ctx, client.ListOptions{Thread: t.thread}) {
		if err != nil {
			return nil, err
		}
		list = append(list, box)
	}
	if len(list) == 0 {
		t.screen.say("the thread has no sandbox yet: one is made when a tool needs it")
	}
	return list, nil
}

func (t *talk) sandboxes(ctx context.Context) error {
	list, err := t.boxes(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	rows := make([][]string, len(list))
	for i, b := range list {
		rows[i] = []string{b.ID, string(b.Status), b.Image, b.Isolation}
	}
	return t.table([]string{"SANDBOX", "STATUS", "IMAGE", "ISOLATION"}, rows)
}

// shownFiles is how many files are listed of one sandbox.
const shownFiles = 200

func (t *talk) listFiles(ctx context.Context, path string) error {
	list, err := t.boxes(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, b := range list {
		files, err := t.c.Files(b.ID).List(ctx, path, false)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", b.ID, err))
			continue
		}
		if len(files) == 0 {
			t.screen.say("%s: no files", format.Printable(b.ID))
			continue
		}
		t.screen.say("%s", format.Printable(b.ID))
		rows := make([][]string, 0, len(files))
		for i, f := range files {
			size, name := format.Size(f.Size), f.Name
			if f.Type == client.Directory {
				size, name = "", name+"/"
			}
			if rows = append(rows, []string{"  " + name, size}); i == shownFiles {
				rows = append(rows, []string{fmt.Sprintf("  and %d more", len(files)-i-1), ""})
				break
			}
		}
		if err := t.table(nil, rows); err != nil {
			return err
		}
	}
	return errors.Join(failed...)
}
