package cli

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) egressCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "egress", Short: "what sandboxes can reach"}
	cmd.AddCommand(a.egressConnectionsCommand(), a.egressExplainCommand(), a.egressSetCommand())
	return cmd
}

func (a *app) egressConnectionsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "connections [flags] ID",
		Short: "list the connections that a sandbox has to hosts outside now",
		Long: `connections lists what is open now, the oldest first, with the bytes so far as
seen from the sandbox. What has ended is in the sandbox's events.`,
		Example:           `  cubby egress connections my-box`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.client().EgressConnections(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, list)
			}
			now, rows := time.Now(), make([][]string, 0, len(list))
			for _, c := range list {
				rows = append(rows, []string{
					net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), c.Protocol, c.Rule, format.Size(c.BytesSent), format.Size(c.BytesReceived),
					format.Age(now.Add(-time.Duration(c.AgeMS)*time.Millisecond), now),
				})
			}
			return format.Table(a.Stdout, []string{"HOST", "PROTOCOL", "RULE", "SENT", "RECEIVED", "OPENED"}, rows)
		},
	}
	jsonFlag(cmd, &asJSON)
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
				err = format.JSON(a.Stdout, d)
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

func (a *app) egressSetCommand() *cobra.Command {
	var network client.Network
	var cut, asJSON bool
	cmd := &cobra.Command{
		Use:   "set [flags] ID",
		Short: "change what a sandbox can reach",
		Long: `set changes the egress policy of a sandbox. Without --mode the present mode stays
and so does a list that is not named; with it the whole policy is replaced.
The change holds for the next connection and the next request of a kept one.
What is open goes on, unless --cut ends what the policy does not allow.`,
		Example: `  cubby egress set my-box --allow pypi.org --allow files.pythonhosted.org
  cubby egress set my-box --mode none --cut`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p := client.Patch{CutConnections: cut}
			if network.Mode != "" || len(network.Allow)+len(network.Deny) > 0 {
				p.Network = &network
			} else if !cut {
				return usageError{cmd, errors.New("nothing to change: name --mode, --allow, --deny or --cut")}
			}
			box, err := a.client().Update(cmd.Context(), args[0], p)
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, box)
			}
			_, err = fmt.Fprintln(a.Stdout, box.Network.Mode)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&network.Mode, "mode", "", "`mode`: none, allowlist or open (default: as it is)")
	f.StringSliceVar(&network.Allow, "allow", nil, "`host` that the sandbox may reach; repeatable")
	f.StringSliceVar(&network.Deny, "deny", nil, "`host` that the sandbox may not reach, whatever allows it; repeatable")
	f.BoolVar(&cut, "cut", false, "end the open connections that the policy does not allow")
	complete(cmd, "mode", "none", "allowlist", "open")
	jsonFlag(cmd, &asJSON)
	return cmd
}
