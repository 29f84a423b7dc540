package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
)

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "print a completion script for a shell",
		Example: `  source <(cubby completion bash)
  cubby completion zsh > "${fpath[1]}/_cubby"`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.Stdout)
			case "fish":
				return root.GenFishCompletion(a.Stdout, true)
			default:
				return root.GenPowerShellCompletionWithDesc(a.Stdout)
			}
		},
	}
}

// complete offers fixed values for a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	completeFlag(cmd, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func completeFlag(cmd *cobra.Command, flag string, with cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, with); err != nil {
		panic("cli: " + err.Error()) // a flag that does not exist: a mistake of this package
	}
}

// completePlaces offers files here and, as "ID:", the sandboxes.
func (a *app) completePlaces(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if strings.ContainsAny(word, ":/.") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ids, _ := a.completeIDs(-1)(cmd, args, word)
	var places []string
	for _, id := range ids {
		id, what, _ := strings.Cut(id, "\t")
		if strings.HasPrefix(id, word) {
			places = append(places, cobra.CompletionWithDesc(id+":", what))
		}
	}
	if len(places) == 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return places, cobra.ShellCompDirectiveNoSpace
}

// completeIDs offers the ids of sandboxes for the first n arguments, all of
// them when n is negative.
func (a *app) completeIDs(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		var ids []string
		for box, err := range a.client().List(ctx, client.ListOptions{}) {
			if err != nil {
				break
			}
			ids = append(ids, cobra.CompletionWithDesc(box.ID, string(box.Status)+" "+box.Image))
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}
