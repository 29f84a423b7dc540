// Package tasks is what the commands about tasks of coding agents do: they start
// one, show its events as they come, ask the questions of its agent, and list,
// cancel and undo. What an agent says comes out of a sandbox: it is shown, and never
// obeyed by the terminal.
package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/task"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// Env is what the commands need.
type Env struct {
	Client   func() *client.Client
	Complete cobra.CompletionFunc              // of a sandbox's id
	Usage    func(*cobra.Command, error) error // makes an error one of usage
	// Exit makes an error that ends the process with a code of its own; a nil err says
	// nothing. OwnExit marks a command that exits with codes of its own, and Own makes
	// cubby's failures in it told apart from them.
	Exit    func(code int, err error) error
	OwnExit string
	Own     func(error) error
	// Signals makes handle see all signals until giveBack is called.
	Signals func(handle func(os.Signal)) (giveBack func())
	Lookup  func(name string) (string, bool) // of the environment
	Columns func() int                       // of the terminal
}

// The exit codes of a task.
const (
	exitFailed    = 1
	exitCancelled = 130
)

// Command is that of tasks.
func Command(a Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "task",
		Short: "give work to coding agents in sandboxes: start, follow, answer, cancel, undo",
		Long: `A task is a prompt for a coding agent, which works on a directory of a sandbox. Before
it begins a checkpoint of the files is made, to which "cubby task restore" brings them
back. A task goes on without the command that started it.`,
		Example: `  cubby create --id my-app --image dev --port 3000
  cubby task run my-app "make a page that shows the time, served on port 3000"
  cubby task logs -f my-app`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.run(), a.ls(), a.get(), a.logs(), a.cancel(), a.answer(), a.restore())
	return cmd
}

func jsonFlag(cmd *cobra.Command, to *bool) { cmd.Flags().BoolVar(to, "json", false, "print JSON") }

// shownPrompt is how much of a prompt a list shows.
const shownPrompt = 60

func (a Env) ls() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ls ID", Short: "list the tasks of a sandbox, the newest first",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			list := []task.Task{}
			for t, err := range a.Client().Tasks(args[0]).List(cmd.Context()) {
				if err != nil {
					return err
				}
				list = append(list, t)
			}
			if asJSON {
				return format.JSON(cmd.OutOrStdout(), map[string]any{"tasks": list})
			}
			now := time.Now()
			rows := make([][]string, len(list))
			for i, t := range list {
				took, files := "", ""
				if t.Finished() {
					took, files = duration(t).String(), strconv.Itoa(len(t.FilesChanged))
				}
				rows[i] = []string{t.ID, state(t), t.Agent, format.Age(t.CreatedAt, now), took, files, line(t.Prompt, shownPrompt)}
			}
			return format.Table(cmd.OutOrStdout(), []string{"TASK", "STATUS", "AGENT", "STARTED", "TOOK", "FILES", "PROMPT"}, rows)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// state is the status of a task with why it failed.
func state(t task.Task) string {
	if t.FailureReason != "" && t.FailureReason != string(t.Status) {
		return string(t.Status) + " (" + t.FailureReason + ")"
	}
	return string(t.Status)
}

func duration(t task.Task) time.Duration {
	d := time.Duration(t.DurationMS) * time.Millisecond
	if d < time.Second {
		return d
	}
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}

// line is the beginning of a text on one line.
func line(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if short := []rune(text); len(short) > most {
		return string(short[:most-1]) + "…"
	}
	return text
}

// taskOf is the task that the arguments name, else the newest of the sandbox.
func (a Env) taskOf(ctx context.Context, args []string) (string, error) {
	if len(args) > 1 {
		return args[1], nil
	}
	for t, err := range a.Client().Tasks(args[0]).List(ctx) {
		return t.ID, err
	}
	return "", fmt.Errorf("%s had no task yet", args[0])
}

// completeTask offers sandboxes for the first argument and tasks for the second.
func (a Env) completeTask(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.Complete(cmd, args, word)
	}
	const most = 20
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var ids []string
	for t, err := range a.Client().Tasks(args[0]).List(ctx) {
		if err != nil || len(ids) == most {
			break
		}
		ids = append(ids, cobra.CompletionWithDesc(t.ID, format.Printable(string(t.Status)+" "+line(t.Prompt, shownPrompt))))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a Env) get() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "get ID [TASK]", Short: "show a task and how it ended (default: the sandbox's newest)",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.taskOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			t, err := a.Client().Tasks(args[0]).Get(cmd.Context(), id)
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(cmd.OutOrStdout(), t)
			}
			return describe(cmd.OutOrStdout(), t)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// describe prints what is known of a task.
func describe(out io.Writer, t task.Task) error {
	rows := [][]string{
		{"task", t.ID}, {"status", state(t)}, {"agent", strings.TrimSpace(t.Agent + " " + t.Model)}, {"directory", t.Cwd},
		{"started", t.CreatedAt.Local().Format(time.DateTime)}, {"prompt", line(t.Prompt, 200)},
	}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	if t.Finished() {
		add("took", duration(t).String())
		add("error", line(t.ErrorMessage, 400))
		add("files", strings.Join(first(t.FilesChanged, 20), ", "))
		if !t.BuildOK {
			add("build", "failed: "+line(t.BuildMessage, 400))
		}
		add("preview", strings.TrimSpace(t.Preview+" "+line(t.PreviewError, 200)))
		if t.Push != nil {
			add("push", pushed(*t.Push))
		}
		add("tokens", tokens(t.Tokens))
		add("checkpoint", strings.TrimSpace(t.Checkpoint+" "+line(t.CheckpointMessage, 200)))
		add("session", t.Session)
		add("answer", line(t.FinalMessage, 400))
	}
	return format.Table(out, nil, rows)
}

// first is the beginning of a list, and what is left out as a number.
func first(list []string, most int) []string {
	if len(list) <= most {
		return list
	}
	return append(list[:most:most], fmt.Sprintf("and %d more", len(list)-most))
}

func (a Env) cancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel ID TASK", Short: "ask a task to end",
		Long: `Asks the agent to end, which is killed with all that it started when it goes on for
five seconds. A task that has ended stays as it is.`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := a.Client().Tasks(args[0]).Cancel(cmd.Context(), args[1])
			return err
		},
	}
}

func (a Env) answer() *cobra.Command {
	return &cobra.Command{
		Use: "answer ID TASK QUESTION OPTION", Short: "answer a question of an agent",
		Long: `Answers what the agent of a task that was started with --ask asks leave for. The
questions and the ids of their options are in "cubby task logs".`,
		Args: cobra.ExactArgs(4), ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.Client().Tasks(args[0]).Answer(cmd.Context(), args[1], args[2], args[3])
		},
	}
}

func (a Env) restore() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "restore ID TASK", Short: "bring the files back to what they were before a task",
		Long: `Brings the files of a task's directory back to what they were before it, and prints the
names of those that changed. Later changes to them are lost too. Files that the
project's git ignores stay, and so do the index and the branches of a repository.`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := a.Client().Tasks(args[0]).Restore(cmd.Context(), args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(cmd.OutOrStdout(), map[string]any{"files": files})
			}
			for _, name := range files {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), format.Printable(name)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a Env) logs() *cobra.Command {
	var follow, asJSON bool
	var o showing
	cmd := &cobra.Command{
		Use:   "logs [flags] ID [TASK]",
		Short: "print the events of a task (default: the sandbox's newest)",
		Long: `Prints what a task did so far, also of one that has ended. With -f it goes on until the
task ends, across broken connections and restarts of the daemon.`,
		Example: "  cubby task logs -f my-app\n  cubby task logs --json my-app 01jd… | jq -c 'select(.type == \"tool\")'",
		Args:    cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := a.taskOf(cmd.Context(), args)
			if err != nil {
				return err
			}
			show := a.newPrinter(cmd, args[0], id, o)
			show.json = asJSON
			tasks := a.Client().Tasks(args[0])
			if follow {
				for e, err := range tasks.Events(cmd.Context(), id, 0) {
					if err == nil {
						err = show.event(e)
					}
					if err != nil {
						return errors.Join(err, show.end())
					}
				}
				return show.end()
			}
			for since := int64(0); ; {
				events, next, err := tasks.EventsSoFar(cmd.Context(), id, since)
				if err != nil {
					return err
				}
				for _, e := range events {
					if err := show.event(e); err != nil {
						return err
					}
				}
				if len(events) == 0 {
					return show.end()
				}
				since = next
			}
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the task ends")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one line of JSON for each event")
	o.register(cmd)
	return cmd
}
