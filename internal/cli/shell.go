package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
)

// bestShell starts bash where the image has it.
const bestShell = `if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi`

func (a *app) shellCommand() *cobra.Command {
	var flags execFlags
	cmd := &cobra.Command{
		Use:   "shell [flags] ID",
		Short: "open a terminal in a sandbox",
		Long: `Opens an interactive shell. Every key goes to the sandbox, Ctrl-C too; leave with
"exit" or Ctrl-D. The terminal survives broken connections and restarts of the
daemon. The exit code is the shell's own, and 125 when cubby itself failed.`,
		Example:           "  cubby shell my-box\n  cubby shell -u root my-box",
		Annotations:       map[string]string{ownExit: "yes"},
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return own(a.shell(cmd.Context(), cmd, &flags, args[0]))
		},
	}
	f := cmd.Flags()
	f.StringVarP(&flags.cwd, "workdir", "w", "", "working `directory` (default /workspace)")
	f.StringVarP(&flags.user, "user", "u", "", "`user`: sandbox or root (default: the sandbox's)")
	f.StringArrayVarP(&flags.env, "env", "e", nil, "environment variable `KEY=VALUE`, or KEY to hand on one of here; repeatable")
	complete(cmd, "user", "sandbox", "root")
	return cmd
}

func (a *app) shell(ctx context.Context, cmd *cobra.Command, flags *execFlags, id string) error {
	flags.tty = true
	o, err := flags.options(a, cmd, []string{"/bin/sh", "-c", bestShell})
	if err != nil {
		return err
	}
	if o.Env == nil {
		o.Env = map[string]string{}
	}
	if _, ok := o.Env["TERM"]; !ok {
		o.Env["TERM"] = cmp.Or(a.getenv("TERM"), "xterm-256color")
	}
	o.Timeout, o.Stdin = client.NoTimeout, true
	p, err := a.client().StartExec(ctx, id, o)
	if err != nil {
		return err
	}
	return a.attach(ctx, p, flags.attachment(a, o))
}
