package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) keepaliveCommand() *cobra.Command {
	var asJSON bool
	var keepFor time.Duration
	var until string
	cmd := &cobra.Command{
		Use:   "keepalive [flags] ID",
		Short: "keep an unused sandbox from being ended",
		Long: `keepalive counts as use of a running sandbox. With --for or --until it takes a
lease: the sandbox is not ended for being idle before, but for its max lifetime
it is. A lease is not shortened by another one; --for 0s gives it up.`,
		Example: `  cubby keepalive my-box
  cubby keepalive my-box --for 2h
  cubby keepalive my-box --until 2026-12-24T18:00:00Z`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			byFor, byUntil := cmd.Flags().Changed("for"), cmd.Flags().Changed("until")
			if byFor && byUntil {
				return usageError{cmd, errors.New("--for and --until exclude each other")}
			}
			c := a.client()
			var box client.Sandbox
			var err error
			switch {
			case byUntil:
				at, parseErr := time.Parse(time.RFC3339, until)
				if parseErr != nil {
					return usageError{cmd, fmt.Errorf("--until: %q is not a time: write 2026-12-24T18:00:00Z", until)}
				}
				box, err = c.KeepUntil(cmd.Context(), args[0], at)
			case byFor:
				box, err = c.KeepFor(cmd.Context(), args[0], keepFor)
			default:
				box, err = c.Keepalive(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, box)
			}
			return a.printKept(box)
		},
	}
	cmd.Flags().DurationVar(&keepFor, "for", 0, "`time` from now, such as 2h")
	cmd.Flags().StringVar(&until, "until", "", "`time` as 2026-12-24T18:00:00Z")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// printKept says when the sandbox will be idle.
func (a *app) printKept(b client.Sandbox) error {
	when := "in use, or never idle"
	if b.IdleAt != nil {
		when = b.IdleAt.Local().Format(time.DateTime)
	}
	_, err := fmt.Fprintln(a.Stdout, when)
	return err
}
