package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/ports"
)

func (a *app) portsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ports ID",
		Short: "list the ports of a sandbox that something listens on, and the declared ones",
		Long: `Lists the TCP ports of a sandbox that a program listens on, with the program's
name and the address of its preview, and the ports that were declared with --port. It
wakes nothing: of a sandbox that does not run it lists the declared ports. "cubby url"
prints a link for ports that not everybody may see.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.client().Ports(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(a.Stdout, map[string]any{"ports": list})
			}
			return ports.Print(a.Stdout, list)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) urlCommand() *cobra.Command {
	var asJSON, link, end bool
	var holds time.Duration
	cmd := &cobra.Command{
		Use:   "url [flags] ID [PORT]",
		Short: "print the address under which a port of a sandbox is seen",
		Long: `Prints the address of a port's preview. Everybody may open it where the sandbox is
public and declares the port; for any other port it is a link, which opens the port
to whoever has it until it expires. "cubby url --end-links ID" ends all links of a
sandbox.`,
		Example: `  cubby url my-box 3000
  cubby url --expires 1h my-box 8888
  cubby url --end-links my-box`,
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if end != (len(args) == 1) {
				return usageError{cmd, errors.New("give a port, or --end-links without one")}
			}
			if end {
				return a.client().EndLinks(cmd.Context(), args[0])
			}
			port, err := strconv.Atoi(args[1])
			if err != nil {
				return usageError{cmd, fmt.Errorf("%q is no port", args[1])}
			}
			address, err := ports.Find(cmd.Context(), a.client(), args[0], port, link, holds)
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(a.Stdout, address)
			}
			fmt.Fprintln(a.Stdout, address.URL)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&link, "link", false, "make a link also where everybody may see the port")
	f.DurationVar(&holds, "expires", 0, "make a link that holds for that `time` (default 24h)")
	f.BoolVar(&end, "end-links", false, "end all links of the sandbox")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) portForwardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "port-forward ID [[HOST:]LOCAL:]PORT...",
		Short: "make ports of this machine lead to ports of a sandbox",
		Long: `Listens here, on 127.0.0.1 unless HOST says otherwise, and carries every TCP connection
to a port of the sandbox, through the daemon and with its token. Without LOCAL the port
is the same here; 0, or nothing before the colon, is a free one, which is printed. It
goes on until it is interrupted; what goes wrong with one connection is told and ends
no other. A connection wakes the sandbox, and is use of it while bytes flow.`,
		Example: `  cubby port-forward my-box 5432
  cubby port-forward my-box 8080:3000 0.0.0.0:9000:9000 :22`,
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rules, err := ports.ParseRules(args[1:])
			if err != nil {
				return usageError{cmd, err}
			}
			return ports.Forward(cmd.Context(), a.client(), args[0], rules, a.Stdout, a.note)
		},
	}
}
