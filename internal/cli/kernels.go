package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/values"
)

func (a *app) kernelsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "list, start and end the kernels of a sandbox",
		Long: `A kernel is an interpreter that runs code in one state until it, or the sandbox,
ends. "cubby code" makes those that it needs; here they can be looked at and ended,
and made with a directory, variables or a user of their own.`,
		Example: `  cubby kernels ls my-box
  cubby kernels create my-box --language node --name second
  cubby kernels restart my-box python`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.kernelsLsCommand(), a.kernelsCreateCommand(), a.kernelsRmCommand(),
		a.kernelsActCommand("interrupt", "interrupt the cell that runs; the kernel keeps its state", (*client.Client).InterruptKernel),
		a.kernelsActCommand("restart", "start a kernel anew, without its state", (*client.Client).RestartKernel))
	return cmd
}

func (a *app) kernelsLsCommand() *cobra.Command {
	var asJSON, available bool
	cmd := &cobra.Command{
		Use: "ls ID", Short: "list kernels", Aliases: []string{"list"},
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kernels, kinds, err := a.client().Kernels(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(a.Stdout, map[string]any{"kernels": kernels, "available": kinds})
			case available:
				return a.printKinds(kinds)
			}
			return a.printKernels(kernels)
		},
	}
	cmd.Flags().BoolVarP(&available, "available", "a", false, "list those that the image brings instead")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printKernels(kernels []client.Kernel) error {
	now := time.Now()
	rows := make([][]string, len(kernels))
	for i, k := range kernels {
		status := k.Status
		if k.Reason != "" {
			status += ": " + k.Reason
		}
		started := ""
		if k.StartedAt != nil {
			started = format.Age(*k.StartedAt, now)
		}
		rows[i] = []string{
			k.Name, k.Language, strconv.FormatInt(k.ExecutionCount, 10), strconv.FormatInt(k.Waiting, 10),
			strconv.FormatInt(k.Restarts, 10), started, status,
		}
	}
	return format.Table(a.Stdout, []string{"NAME", "LANGUAGE", "CELLS", "WAITING", "RESTARTS", "STARTED", "STATUS"}, rows)
}

func (a *app) printKinds(kinds []client.KernelKind) error {
	rows := make([][]string, len(kinds))
	for i, k := range kinds {
		rows[i] = []string{k.Spec, k.Language, k.DisplayName}
	}
	return format.Table(a.Stdout, []string{"KERNEL", "LANGUAGE", "NAME"}, rows)
}

func (a *app) kernelsCreateCommand() *cobra.Command {
	var o client.KernelOptions
	var env, envFiles []string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "create [flags] ID", Short: "start a kernel and print its name",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Env, err = values.Environment(a.lookupEnv, env, envFiles); err != nil {
				return usageError{cmd, err}
			}
			k, err := a.client().CreateKernel(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, k)
			}
			fmt.Fprintln(a.Stdout, k.Name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Name, "name", "n", "", "its `name` (default: the language's)")
	f.StringVar(&o.Language, "language", "", "`name` of the language, or of a kernel of the image (default: the sandbox's runtime, python)")
	f.StringVarP(&o.Cwd, "workdir", "w", "", "working `directory` (default /workspace)")
	f.StringVarP(&o.User, "user", "u", "", "`user`: sandbox or root (default: the sandbox's)")
	f.StringArrayVarP(&env, "env", "e", nil, "environment variable `KEY=VALUE`, or KEY to hand on one of here; repeatable")
	f.StringArrayVar(&envFiles, "env-file", nil, "`file` of KEY=VALUE lines; repeatable")
	complete(cmd, "language", "python", "node", "r", "bash")
	complete(cmd, "user", "sandbox", "root")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) kernelsActCommand(name, short string, act kernelAct) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: name + " ID KERNEL", Short: short,
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.completeKernels(),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := act(a.client(), cmd.Context(), args[0], args[1])
			if err == nil && asJSON {
				err = format.JSON(a.Stdout, k)
			}
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) kernelsRmCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rm ID KERNEL…", Short: "end kernels and forget them",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeKernels(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.client()
			return a.eachID(args[1:], asJSON, func(name string) error {
				return c.DeleteKernel(cmd.Context(), args[0], name)
			})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// kernelAct is a method of the client.
type kernelAct func(c *client.Client, ctx context.Context, id, name string) (client.Kernel, error)

// completeKernels offers the ids of sandboxes, then the names of kernels.
func (a *app) completeKernels() cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return a.completeIDs(1)(cmd, args, prefix)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		kernels, _, err := a.client().Kernels(ctx, args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names := make([]string, len(kernels))
		for i, k := range kernels {
			names[i] = cobra.CompletionWithDesc(k.Name, k.Language+" "+k.Status)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
