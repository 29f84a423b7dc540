package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

func (a *app) installCommand() *cobra.Command {
	var runtime string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "install [flags] ID NAME[=VERSION]…",
		Short: "install packages in a sandbox",
		Long: `Installs packages with pip, npm or R's install.packages, and prints the versions
that are there then. What the installer says goes to the standard error.`,
		Example: `  cubby install my-box pandas=2.2.3 matplotlib
  cubby install my-box 'django>=4.2,<5'
  cubby install my-box --runtime node lodash@4.17.21 @types/node`,
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := dependencies(args[1:])
			if err != nil {
				return usageError{cmd, err}
			}
			installed, err := a.client().InstallPackages(cmd.Context(), args[0], client.PackagesOptions{
				Runtime: runtime, Dependencies: wanted, Progress: a.installing,
			})
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(a.Stdout, installed)
			}
			for _, p := range installed {
				fmt.Fprintln(a.Stdout, format.Printable(p.Name+" "+p.Version))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&runtime, "runtime", "", "`language` of the packages: python, node or r (default the sandbox's, or python)")
	complete(cmd, "runtime", "python", "node", "r")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// installing shows what an installer says, without the line that is for
// programs.
func (a *app) installing(out client.Output) {
	for line := range strings.Lines(string(out.Data)) {
		if !strings.HasPrefix(line, `{"installed"`) {
			fmt.Fprint(a.Stderr, line)
		}
	}
}

// dependencies reads NAME, NAME=VERSION, NAME@VERSION, and NAME with a
// specifier as pip writes it.
func dependencies(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := map[string]string{}
	for _, item := range list {
		name, version := item, ""
		if i := strings.IndexAny(item, "=<>!~"); i > 0 {
			name, version = item[:i], item[i:]
			if rest := strings.TrimLeft(version, "="); len(version)-len(rest) > 0 {
				version = rest
			}
		} else if i := strings.LastIndexByte(item, '@'); i > 0 {
			name, version = item[:i], item[i+1:]
		}
		name = strings.TrimSuffix(strings.TrimSpace(name), "@")
		if name == "" {
			return nil, fmt.Errorf("dependency %q has no name", item)
		}
		if _, twice := m[name]; twice {
			return nil, fmt.Errorf("dependency %q is there twice", name)
		}
		m[name] = strings.TrimSpace(version)
	}
	return m, nil
}
