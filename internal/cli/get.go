package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) getCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "get ID",
		Short:             "show a sandbox and its commands",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client()
			box, err := c.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, box)
			}
			if err := a.printBox(box); err != nil {
				return err
			}
			execs, earlier, err := lastExecs(cmd, c, box.ID)
			if err != nil || len(execs) == 0 {
				return err
			}
			fmt.Fprintln(a.Stdout)
			if earlier > 0 {
				fmt.Fprintf(a.Stdout, "(%d earlier)\n", earlier)
			}
			return a.printExecs(execs)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// lastExecs returns the last commands and how many there were before them.
func lastExecs(cmd *cobra.Command, c *client.Client, id string) (last []client.Exec, earlier int64, err error) {
	const page, shown = 1000, 20
	for {
		var after int64
		if n := len(last); n > 0 {
			after = last[n-1].Seq
		}
		execs, err := c.Execs(cmd.Context(), id, after, page)
		if err != nil {
			return nil, 0, err
		}
		last = append(last, execs...)
		last = last[max(0, len(last)-shown):]
		if len(execs) == 0 { // a page of long commands is shorter
			break
		}
	}
	if len(last) > 0 {
		earlier = last[0].Seq - 1
	}
	return last, earlier, nil
}

func (a *app) printBox(b client.Sandbox) error {
	now := time.Now()
	network := b.Network.Mode
	if len(b.Network.Allow) > 0 {
		network += ": " + strings.Join(b.Network.Allow, ", ")
	}
	if len(b.Network.Deny) > 0 {
		network += "; never " + strings.Join(b.Network.Deny, ", ")
	}
	if named := b.Network.ProxyEnv; named != nil && !*named {
		network += "; no proxy variables"
	}
	rows := [][]string{
		{"id", b.ID},
		{"status", string(b.Status)},
	}
	row := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	row("reason", b.Reason)
	row("image", b.Image)
	row("runtime", b.Runtime)
	row("dependencies", labelText(b.Dependencies))
	row("isolation", b.Isolation)
	row("user", b.User)
	row("limits", fmt.Sprintf("%s memory, %s CPUs, %d processes, %s disk",
		format.Size(b.Limits.MemoryBytes), strconv.FormatFloat(b.Limits.CPUs, 'g', -1, 64), b.Limits.PIDs, format.Size(b.Limits.DiskBytes)))
	row("network", network)
	row("ports", strings.Trim(fmt.Sprint(b.Ports), "[]"))
	row("labels", labelText(b.Labels))
	row("metadata", labelText(b.Metadata))
	row("exec timeout", format.Seconds(b.ExecTimeoutSeconds))
	row("auto wake", b.AutoWake)
	row("when idle", fmt.Sprintf("%s after %s", b.IdlePolicy, format.Seconds(b.IdleTimeoutSeconds)))
	if b.IdleAt != nil {
		row("idle at", b.IdleAt.Local().Format(time.DateTime))
	}
	if b.KeptUntil != nil {
		row("kept until", b.KeptUntil.Local().Format(time.DateTime))
	}
	if b.ExpiresAt != nil {
		row("destroyed at", b.ExpiresAt.Local().Format(time.DateTime))
	}
	row("tenant", b.TenantID)
	if b.SharedFiles {
		row("files", "shared with others of its tenant")
	}
	row("thread", b.Thread)
	row("pushed to", b.GitRemoteURL)
	row("task", b.ActiveTaskID)
	row("created", fmt.Sprintf("%s (%s)", b.CreatedAt.Local().Format(time.DateTime), format.Age(b.CreatedAt, now)))
	row("last active", format.Age(b.LastActiveAt, now))
	return format.Table(a.Stdout, nil, rows)
}

func (a *app) printExecs(execs []client.Exec) error {
	rows := make([][]string, len(execs))
	for i, e := range execs {
		rows[i] = []string{strconv.FormatInt(e.Seq, 10), exitText(e), duration(e), cmdText(e)}
	}
	return format.Table(a.Stdout, []string{"SEQ", "EXIT", "TIME", "COMMAND"}, rows)
}

func exitText(e client.Exec) string {
	switch {
	case !e.Finished():
		return string(e.Status)
	case e.ExitCode == nil:
		return e.Reason
	case e.Reason == "exited" || e.Reason == "":
		return strconv.Itoa(*e.ExitCode)
	}
	return fmt.Sprintf("%d %s", *e.ExitCode, e.Reason)
}

func duration(e client.Exec) string {
	if !e.Finished() {
		return ""
	}
	d := time.Duration(e.DurationMS * float64(time.Millisecond))
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// cmdText shows a command, or a cell, on one line of bounded length.
func cmdText(e client.Exec) string {
	text := e.Cmd.Shell
	switch {
	case e.Kernel != "":
		text = e.Kernel + ": " + strings.TrimSpace(e.Code)
	case text == "":
		quoted := make([]string, len(e.Cmd.Argv))
		for i, arg := range e.Cmd.Argv {
			quoted[i] = shellQuote(arg)
		}
		text = strings.Join(quoted, " ")
	}
	return shorten(text)
}

// shorten cuts a text to what a cell of a table has room for.
func shorten(text string) string {
	const limit = 80
	if r := []rune(text); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return text
}

// shellQuote quotes an argument where a shell would need it.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%+=:,./-_", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
