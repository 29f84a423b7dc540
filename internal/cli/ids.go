package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
)

// resolveIDs lets the ids that commands take be given by a prefix, everywhere:
// what a command takes is in its usage.
func (a *app) resolveIDs(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		a.resolveIDs(sub)
	}
	n, run := idArgs(cmd.Use), cmd.RunE
	if n == 0 || run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		args = slices.Clone(args)
		for i := range args {
			if n > 0 && i >= n {
				break
			}
			id, err := a.resolve(cmd.Context(), args[i], cmd.CommandPath() == "cubby rm")
			if err != nil {
				if cmd.Annotations[ownExit] != "" {
					err = own(err)
				}
				return err
			}
			args[i] = id
		}
		return run(cmd, args)
	}
}

// idArgs is how many ids of sandboxes the arguments of a command begin with;
// -1: all of them are.
func idArgs(use string) int {
	words := slices.DeleteFunc(strings.Fields(use), func(w string) bool { return w == "[flags]" })
	switch {
	case len(words) < 2:
		return 0
	case words[1] == "ID…":
		return -1
	case words[1] == "ID":
		return 1
	}
	return 0
}

// maxMatches is how many ids a complaint names.
const maxMatches = 5

// generatedID is what the daemon gives to a sandbox that is created without.
var generatedID = regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{26}$`)

// resolve returns the id that a prefix stands for. What is an id itself, of a
// sandbox that was destroyed too, stands for nothing else: a script that goes
// on after a destroy must not reach a sandbox with a longer name. With
// generated only ids that nobody chose are found, so that a destroy needs the
// whole of a name.
func (a *app) resolve(ctx context.Context, prefix string, generated bool) (string, error) {
	if prefix == "" {
		return "", nil
	}
	c := a.client()
	if _, err := c.Get(ctx, prefix); !errors.Is(err, client.NotFound) {
		return prefix, nil //nolint:nilerr // the command itself meets it
	}
	if _, _, err := c.Events(ctx, prefix, 0, 1); err == nil {
		return prefix, nil
	}
	var found []string
	for box, err := range c.List(ctx, client.ListOptions{}) {
		if err != nil {
			return prefix, nil //nolint:nilerr // as above
		}
		if strings.HasPrefix(strings.ToLower(box.ID), strings.ToLower(prefix)) && (!generated || generatedID.MatchString(box.ID)) {
			found = append(found, box.ID)
		}
	}
	switch {
	case len(found) == 0: // the daemon says so
		return prefix, nil
	case len(found) == 1:
		return found[0], nil
	}
	shown := strings.Join(found[:min(len(found), maxMatches)], ", ")
	if len(found) > maxMatches {
		shown += ", …"
	}
	return "", fmt.Errorf("%d sandboxes begin with %q: %s", len(found), prefix, shown)
}
