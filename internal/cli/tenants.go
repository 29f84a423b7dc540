package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) tenantsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenants",
		Short: "tenants, whose sandboxes share files",
		Long: `Sandboxes created with --tenant NAME share /workspace and /mnt/user-data/outputs,
which stay when the sandboxes are destroyed, and read the tenant's uploads below
/mnt/user-data/uploads.`,
		Example: `  cubby create --tenant acme
  cubby tenants upload acme data.csv
  cubby tenants ls`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.tenantsLsCommand(), a.tenantsGetCommand(), a.tenantsRmCommand(), a.tenantsUploadCommand(), a.tenantsUploadsCommand())
	return cmd
}

func (a *app) tenantsLsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [flags]",
		Short: "list tenants",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := []client.Tenant{}
			for t, err := range a.client().Tenants(cmd.Context()) {
				if err != nil {
					return err
				}
				list = append(list, t)
			}
			if asJSON {
				return format.JSON(a.Stdout, list)
			}
			return a.printTenants(list)
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) tenantsGetCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get [flags] TENANT",
		Short: "describe a tenant",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := a.client().Tenant(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, t)
			}
			return a.printTenants([]client.Tenant{t})
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) printTenants(list []client.Tenant) error {
	now := time.Now()
	rows := make([][]string, len(list))
	for i, t := range list {
		rows[i] = []string{
			t.ID, strconv.Itoa(t.Running), strconv.Itoa(t.Sandboxes), format.Size(t.Disk.Bytes), format.Size(t.Disk.Allocated), format.Age(t.CreatedAt, now),
		}
	}
	return format.Table(a.Stdout, []string{"TENANT", "RUNNING", "SANDBOXES", "DISK", "ON HOST", "CREATED"}, rows)
}

func (a *app) tenantsRmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm TENANT…",
		Short: "delete the shared files and uploads of tenants that have no sandboxes",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachID(args, false, func(name string) error { return a.client().RemoveTenant(cmd.Context(), name) })
		},
	}
	return cmd
}

func (a *app) tenantsUploadCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "upload TENANT FILE [PATH]",
		Short: "make a file of here an upload of a tenant",
		Long: `A PATH that ends with "/" is a directory to put the file in. Without one the file
keeps its name.`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := os.Open(args[1])
			if err != nil {
				return err
			}
			defer file.Close()
			name := filepath.Base(args[1])
			if len(args) == 3 {
				if strings.HasSuffix(args[2], "/") {
					name = args[2] + name
				} else {
					name = args[2]
				}
			}
			f, err := a.client().Uploads(args[0]).Write(cmd.Context(), name, file)
			if err == nil {
				fmt.Fprintln(a.Stdout, f.Path)
			}
			return err
		},
	}
}

func (a *app) tenantsUploadsCommand() *cobra.Command {
	var remove []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "uploads [flags] TENANT",
		Short: "list or remove the uploads of a tenant",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			uploads := a.client().Uploads(args[0])
			for _, name := range remove {
				if err := uploads.Remove(cmd.Context(), name, true); err != nil {
					return err
				}
			}
			if len(remove) > 0 {
				return nil
			}
			files, err := uploads.List(cmd.Context(), "", true)
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, files)
			}
			rows := make([][]string, len(files))
			for i, f := range files {
				rows[i] = []string{f.Path, string(f.Type), format.Size(f.Size)}
			}
			return format.Table(a.Stdout, nil, rows)
		},
	}
	cmd.Flags().StringArrayVar(&remove, "rm", nil, "remove the upload `PATH` instead; repeatable")
	jsonFlag(cmd, &asJSON)
	return cmd
}
