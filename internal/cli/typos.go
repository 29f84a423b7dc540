package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// maxTypos is how far a word may be from what was meant.
const maxTypos = 2

// likelyFlag adds to a complaint about an unknown flag the one that was
// probably meant.
func likelyFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedShortnames()) > 0 {
		return err
	}
	best, distance := "", maxTypos+1
	look := func(f *pflag.Flag) {
		if d := typos(unknown.GetSpecifiedName(), f.Name); d < distance && !f.Hidden {
			best, distance = f.Name, d
		}
	}
	cmd.Flags().VisitAll(look)
	cmd.InheritedFlags().VisitAll(look)
	if best == "" {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, best)
}

// likelyCommand is the complaint about a word that is no command of cmd.
func likelyCommand(cmd *cobra.Command, word string) error {
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), word)
	if meant := meantCommand(cmd, word); meant != "" {
		text += fmt.Sprintf("; did you mean %q?", meant)
	}
	return usageError{cmd, errors.New(text)}
}

// meantCommand is the command of cmd that a word was probably meant to be; "":
// none.
func meantCommand(cmd *cobra.Command, word string) string {
	best, distance := "", maxTypos+1
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() && sub.Name() != "help" {
			continue
		}
		for _, name := range append(slices.Clone(sub.Aliases), sub.Name()) {
			d := typos(word, name)
			if len(word) > 2 && strings.HasPrefix(name, word) {
				d = 0
			}
			if d < distance && d < len(name) {
				best, distance = sub.Name(), d
			}
		}
	}
	return best
}

// knownCommands makes commands that have others complain about a word that is
// none of these. Those that only have others show their help.
func knownCommands(cmd *cobra.Command) {
	switch {
	case !cmd.HasSubCommands():
	case cmd.ValidArgsFunction == nil:
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return likelyCommand(cmd, args[0])
		}
		if !cmd.Runnable() { // no arguments are looked at then
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	default: // it takes an id, which may be any word
		check := cmd.Args
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if err != nil && len(args) > 0 && meantCommand(cmd, args[0]) != "" {
				return likelyCommand(cmd, args[0])
			}
			return err
		}
	}
	for _, sub := range cmd.Commands() {
		knownCommands(sub)
	}
}

// helpCommand is cobra's, but for a word that is no command: that is an error.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Long: `Help provides help for any command in the application.
Simply type cubby help [path to command] for full details.`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range cmd.Commands() {
				if (sub.IsAvailableCommand() || sub.Name() == "help") && strings.HasPrefix(sub.Name(), word) {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && cmd.HasSubCommands() {
				return likelyCommand(cmd, rest[0])
			}
			cmd.InitDefaultHelpFlag() // so that it is among the flags
			return cmd.Help()
		},
	}
}

// typos is how many letters must be put in, taken out, changed or exchanged
// with the next one to make one word of the other.
func typos(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
