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
	text := fmt.Sprintf("%s has no command %q", cmd.CommandPath(), word)
	if best != "" {
		text += fmt.Sprintf("; did you mean %q?", best)
	}
	return usageError{cmd, errors.New(text)}
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
