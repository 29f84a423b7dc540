package cli

import (
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) egressCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "egress", Short: "what sandboxes can reach"}
	cmd.AddCommand(a.egressExplainCommand())
	return cmd
}

func (a *app) egressExplainCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain [flags] ID HOST[:PORT]",
		Short: "say what a request for a host would get, and which rule decides",
		Long: `explain asks the daemon what the sandbox would get that asks for a host; port 443
when none is given. The name is looked up and nothing is connected. The exit
code is 0 for what is allowed and 1 for what is denied.`,
		Example: `  cubby egress explain my-box pypi.org
  cubby egress explain my-box 10.0.0.5:8080`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.client().ExplainEgress(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				err = printJSON(a.Stdout, d)
			case d.Allow:
				_, err = fmt.Fprintf(a.Stdout, "allowed: %s (rule %s)\n", net.JoinHostPort(d.Host, strconv.Itoa(d.Port)), d.Rule)
			default:
				_, err = fmt.Fprintf(a.Stdout, "denied: %s (rule %s)\n", d.Reason, d.Rule)
				if err == nil && d.Hint != "" {
					_, err = fmt.Fprintln(a.Stdout, d.Hint)
				}
			}
			if err == nil && !d.Allow {
				return &codeError{code: exitError}
			}
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
