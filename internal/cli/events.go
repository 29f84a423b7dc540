package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) eventsCommand() *cobra.Command {
	var follow, asJSON bool
	var kinds []string
	var after int64
	cmd := &cobra.Command{
		Use:   "events [flags] ID",
		Short: "print what happened in a sandbox, and to it",
		Long: `Prints the history of a sandbox, oldest first, also of one that was destroyed a
while ago. With -f it goes on until the sandbox is destroyed, across broken
connections and restarts of the daemon.`,
		Example:           "  cubby events my-box\n  cubby events -f --kinds exec.finished,git.* my-box",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, id := a.client(), args[0]
			commands := commandsOf{c: c, id: id, lines: map[int64]string{}}
			show := func(w io.Writer, e client.Event) error {
				return eventLine(w, e, commands.line(cmd.Context(), e))
			}
			if asJSON {
				show = eventJSON
			}
			if follow {
				for e, err := range c.FollowEvents(cmd.Context(), id, after, kinds...) {
					if err == nil {
						err = show(a.Stdout, e)
					}
					if err != nil {
						return err
					}
				}
				return nil
			}
			for {
				events, next, err := c.Events(cmd.Context(), id, after, 1000, kinds...)
				if err != nil {
					return err
				}
				for _, e := range events {
					if err := show(a.Stdout, e); err != nil {
						return err
					}
				}
				if len(events) == 0 {
					return nil
				}
				after = next
			}
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on until the sandbox is destroyed")
	f.StringSliceVar(&kinds, "kinds", nil, "only these `kinds`, as exec.finished or git.*; separated by commas")
	f.Int64Var(&after, "after", 0, "begin after this `cursor`")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON for each event")
	return cmd
}

func eventJSON(w io.Writer, e client.Event) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(e)
}

// commandsOf knows the commands of a sandbox, which events name by number.
type commandsOf struct {
	c     *client.Client
	id    string
	lines map[int64]string
	gone  bool // nobody can tell any more
}

// line is the command that an event is about; "" when it is about none.
func (k *commandsOf) line(ctx context.Context, e client.Event) string {
	if e.Seq == 0 || !strings.HasPrefix(e.Kind, "exec.") {
		return ""
	}
	if line, known := k.lines[e.Seq]; known || k.gone {
		return line
	}
	const page = 200
	execs, err := k.c.Execs(ctx, k.id, e.Seq-1, page)
	k.gone = err != nil
	for _, x := range execs {
		k.lines[x.Seq] = x.Cmd.String()
	}
	return k.lines[e.Seq]
}

// eventLine is an event as people read it, with the command that it is about.
// Parts of it come from inside the sandbox.
func eventLine(w io.Writer, e client.Event, command string) error {
	seq, what := "-", e.Payload
	if e.Seq > 0 {
		seq = strconv.FormatInt(e.Seq, 10)
	}
	if e.Result != nil {
		what = e.Result
	}
	text := string(what)
	if command != "" {
		text = "`" + command + "` " + text
	}
	by := ""
	if e.Actor != "" {
		by = " by " + e.Actor
	}
	_, err := fmt.Fprintln(w, format.Printable(fmt.Sprintf("%d  %s  %-18s %3s %-7s %s%s",
		e.Cursor, e.Time.Local().Format(time.DateTime), e.Kind, seq, e.Status, text, by)))
	return err
}
