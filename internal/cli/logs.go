package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) logsCommand() *cobra.Command {
	var follow, asJSON bool
	var after int64
	cmd := &cobra.Command{
		Use:   "logs [flags] ID [SEQ]",
		Short: "print what a command printed",
		Long: `Prints the output of a command, by default of the sandbox's last one. With -f it
goes on until the command ends, across broken connections and restarts of the
daemon.`,
		Example:           "  cubby logs my-box 2\n  cubby logs -f --after 4096 my-box",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client()
			seq, err := a.seqOf(cmd, c, args)
			if err != nil {
				return err
			}
			p := c.Process(args[0], seq)
			return a.printLog(cmd, p, after, follow, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the command ends")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the command with its output as JSON; with -f one line per piece")
	cmd.Flags().Int64Var(&after, "after", 0, "begin after so many `bytes`")
	return cmd
}

// printLog prints what a command printed.
func (a *app) printLog(cmd *cobra.Command, p *client.Process, after int64, follow, asJSON bool) error {
	switch {
	case follow:
		return a.followFrom(cmd, p, after, asJSON)
	case asJSON:
		e, err := p.Get(cmd.Context())
		if err != nil {
			return err
		}
		return format.JSON(a.Stdout, e)
	}
	r, err := p.Output(cmd.Context(), after)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(a.Stdout, r)
	return err
}

// seqOf is the command that the user named, else the last one.
func (a *app) seqOf(cmd *cobra.Command, c *client.Client, args []string) (int64, error) {
	if len(args) == 2 {
		seq, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil || seq < 1 {
			return 0, usageError{cmd, fmt.Errorf("%q is not the number of a command", args[1])}
		}
		return seq, nil
	}
	execs, _, err := lastExecs(cmd, c, args[0])
	if err != nil {
		return 0, err
	}
	if len(execs) == 0 {
		return 0, fmt.Errorf("nothing ran in %s yet", args[0])
	}
	return execs[len(execs)-1].Seq, nil
}

func (a *app) followFrom(cmd *cobra.Command, p *client.Process, after int64, asJSON bool) error {
	lines := json.NewEncoder(a.Stdout)
	lines.SetEscapeHTML(false)
	for out, err := range p.Stream(cmd.Context(), after) {
		if err != nil {
			return err
		}
		if asJSON {
			if err := lines.Encode(out); err != nil {
				return err
			}
			continue
		}
		w := a.Stdout
		switch out.Stream {
		case "stderr":
			w = a.Stderr
		case client.Rich:
			continue // it is for programs
		}
		if _, err := w.Write(out.Data); err != nil {
			return err
		}
	}
	return nil
}
