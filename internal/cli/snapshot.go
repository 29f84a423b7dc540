package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "sandboxes that are kept as they were",
		Long: `A snapshot has the files of a sandbox and, with --memory, all that ran in it. It
outlives the sandbox. Others begin from it with "cubby create --snapshot", and
"cubby rollback" puts a sandbox back to it.`,
		Example: `  cubby snapshot create --name before --memory $ID
  cubby create --snapshot before
  cubby rollback $ID before`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.snapshotCreateCommand(), a.snapshotLsCommand(), a.snapshotRmCommand())
	return cmd
}

func (a *app) snapshotCreateCommand() *cobra.Command {
	var asJSON bool
	var o client.SnapshotOptions
	cmd := &cobra.Command{
		Use:               "create [flags] ID",
		Short:             "keep a sandbox as it is and print the snapshot's name",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.client().CreateSnapshot(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, s)
			}
			fmt.Fprintln(a.Stdout, s.Name)
			return nil
		},
	}
	cmd.Flags().StringVar(&o.Name, "name", "", "`name` of the snapshot (default its id)")
	cmd.Flags().BoolVar(&o.Memory, "memory", false, "keep what runs too (gvisor only)")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) snapshotLsCommand() *cobra.Command {
	var asJSON bool
	var q client.SnapshotQuery
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "list snapshots, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := a.snapshots(cmd.Context(), q)
			if err == nil && len(list) == 0 && q.Source != "" {
				// Snapshots outlive their sandbox, and its id is one as long as they
				// do: only what has none may be the beginning of another.
				if q.Source, err = a.resolve(cmd.Context(), q.Source, false); err == nil {
					list, err = a.snapshots(cmd.Context(), q)
				}
			}
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, list)
			}
			return a.printSnapshots(list)
		},
	}
	cmd.Flags().StringVar(&q.Source, "sandbox", "", "only those of the sandbox with this `ID`")
	cmd.Flags().StringVar(&q.TenantID, "tenant", "", "only those of a tenant, by its `name`")
	completeFlag(cmd, "sandbox", a.completeIDs(-1))
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) snapshots(ctx context.Context, q client.SnapshotQuery) ([]client.Snapshot, error) {
	list := []client.Snapshot{}
	for s, err := range a.client().Snapshots(ctx, q) {
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func (a *app) printSnapshots(list []client.Snapshot) error {
	now := time.Now()
	rows := make([][]string, len(list))
	for i, s := range list {
		has := "files"
		if s.Memory {
			has = "files, memory"
		}
		rows[i] = []string{s.Name, s.Source, has, s.Isolation, format.Size(s.SizeBytes), format.Age(s.CreatedAt, now)}
	}
	return format.Table(a.Stdout, []string{"NAME", "SANDBOX", "HAS", "ISOLATION", "SIZE", "CREATED"}, rows)
}

func (a *app) snapshotRmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME…",
		Short: "delete snapshots, by their names or ids",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachID(args, false, func(name string) error { return a.client().RemoveSnapshot(cmd.Context(), name) })
		},
	}
}

func (a *app) forkCommand() *cobra.Command {
	var asJSON bool
	var count int
	var ids []string
	cmd := &cobra.Command{
		Use:   "fork [flags] ID",
		Short: "make sandboxes with the memory and files of a running one and print their ids",
		Long: `The sandbox goes on, and so does in each new one what ran in it. All of them are
made, or none. gvisor only: of a container, make a snapshot of its files.`,
		Example: `  cubby fork $ID
  cubby fork --count 10 $ID
  cubby fork --id try-a --id try-b $ID`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := a.client().Fork(cmd.Context(), args[0], count, ids...)
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, f)
			}
			a.warn(f.Warnings)
			for _, box := range f.Sandboxes {
				fmt.Fprintln(a.Stdout, box.ID)
			}
			return nil
		},
	}
	cmd.Flags().IntVarP(&count, "count", "n", 0, "`number` of sandboxes, at most 100 (default as many as there are ids, at least 1)")
	cmd.Flags().StringArrayVar(&ids, "id", nil, "`ID` of a new sandbox (default: generated); repeatable")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) rollbackCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rollback [flags] ID SNAPSHOT",
		Short: "put a sandbox back to a snapshot",
		Long: `Its files and, if the snapshot has it, its memory, under its own id. What runs in
it ends.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			box, err := a.client().Rollback(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, box)
			}
			a.warn(box.Warnings)
			return nil
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

// warn shows what a sandbox has in common with others of its memory.
func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(a.Stderr, "warning: "+w)
	}
}
