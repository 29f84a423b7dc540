// Package secrets is what the commands about secrets do, and how the value of one
// is read: from the standard input, so that it is on no command line.
package secrets

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

// Command is that of secrets. daemon is the client of the daemon that the user
// means.
func Command(daemon func() *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret",
		Short: "secrets of tenants, such as keys of model providers",
		Long: `The operator sets secrets per tenant, for the tasks of the tenant. The daemon keeps
them sealed and shows no value to anybody; set a secret again to replace it. Without
--tenant they are those of sandboxes that belong to no tenant. Tokens of tenants
may do none of this.`,
		Example: `  cubby secret set ANTHROPIC_API_KEY --tenant acme < key.txt
  cubby secret ls --tenant acme
  cubby secret rm ANTHROPIC_API_KEY --tenant acme`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(set(daemon), ls(daemon), rm(daemon))
	return cmd
}

func tenantFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "tenant", "", "`tenant` whose secrets are meant (default: sandboxes of no tenant)")
}

func set(daemon func() *client.Client) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "set [flags] NAME",
		Short: "set a secret to what the input holds",
		Long: `Reads the value from the standard input: all of it, without one newline at its end.
On a terminal it asks for one line and does not show it. NAME is that of an
environment variable, the value at most 32 KiB of text. A secret that is set already
gets the new value.`,
		Example: `  cubby secret set OPENAI_API_KEY
  pass show openai | cubby secret set OPENAI_API_KEY --tenant acme`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := tty.ReadValue(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), format.Printable(args[0]))
			if err != nil {
				return err
			}
			s, err := daemon().SetSecret(cmd.Context(), tenant, args[0], value)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), s.Name)
			}
			return err
		},
	}
	tenantFlag(cmd, &tenant)
	return cmd
}

func ls(daemon func() *client.Client) *cobra.Command {
	var tenant string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "list the secrets of a tenant, without their values",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := daemon().Secrets(cmd.Context(), tenant)
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(cmd.OutOrStdout(), list)
			}
			now := time.Now()
			rows := make([][]string, len(list))
			for i, s := range list {
				rows[i] = []string{s.Name, format.Age(s.UpdatedAt, now)}
			}
			return format.Table(cmd.OutOrStdout(), []string{"NAME", "SET"}, rows)
		},
	}
	tenantFlag(cmd, &tenant)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func rm(daemon func() *client.Client) *cobra.Command {
	var tenant string
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME",
		Short: "remove a secret",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := daemon().RemoveSecret(cmd.Context(), tenant, args[0])
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), args[0])
			}
			return err
		},
	}
	tenantFlag(cmd, &tenant)
	return cmd
}
