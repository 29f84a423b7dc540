// Package settings is what the commands about the agent's settings do. Keys of
// providers are read from the standard input, as those of `cubby secret`; one that is
// on the command line all the same is taken with a warning.
package settings

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/client/settings"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/tty"
)

const names = `Names are
  model              which model the agent asks, as provider/model
  PROVIDER.key       the key of a provider, as openai.key
  PROVIDER.base_url  where its API is, when it is not the provider's own
  supports_vision    whether the model sees images: auto, true or false
  max_iterations     how often one run may ask its model
  token_budget       tokens that one run may use
  approval.TOOL      allow, ask or deny a tool; approval.* is all others`

// Command is that of settings. daemon is the client of the daemon that the user
// means.
func Command(daemon func() *client.Client) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "which models the agent asks, with whose keys, and what it may do",
		Long: `A token of a tenant has the settings of the tenant; any other one, and a daemon without
tokens, the operator's, which hold for tenants where they set none. The daemon keeps
keys sealed and shows none to anybody. Without a command this is get.

` + names,
		Example: `  cubby settings set openai.key < key.txt
  cubby settings set model=openai/gpt-4o approval.exec=ask
  cubby settings test`,
		Args: cobra.NoArgs,
	}
	show := get(daemon)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return show.RunE(cmd, nil) }
	cmd.AddCommand(show, set(daemon), rm(daemon), test(daemon), models(daemon))
	return cmd
}

func get(daemon func() *client.Client) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "get [flags] [NAME]",
		Short: "show the settings, without keys",
		Long:  "Shows what holds and who set it, or only what NAME is set to.\n\n" + names,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := settings.New(daemon()).Get(cmd.Context())
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(cmd.OutOrStdout(), s)
			case len(args) == 0:
				return printAll(cmd.OutOrStdout(), s)
			}
			n, err := parseName(args[0])
			if err != nil {
				return err
			}
			value, ok := own(s)[n.String()]
			if !ok {
				return fmt.Errorf("%s is not set", n)
			}
			fmt.Fprintln(cmd.OutOrStdout(), format.Printable(value))
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// own are the settings that are set, by name.
func own(s settings.Settings) map[string]string {
	all := map[string]string{}
	put := func(name string, value *string) {
		if value != nil {
			all[name] = *value
		}
	}
	put("model", s.Model)
	put("supports_vision", s.SupportsVision)
	if s.MaxIterations != nil {
		all["max_iterations"] = strconv.Itoa(*s.MaxIterations)
	}
	if s.TokenBudget != nil {
		all["token_budget"] = strconv.FormatInt(*s.TokenBudget, 10)
	}
	for name, p := range s.Providers {
		put(name+".base_url", p.BaseURL)
		put(name+".key", p.KeyHint)
	}
	for tool, decision := range s.Approval {
		all["approval."+tool] = decision
	}
	return all
}

// printAll prints what holds, by name, and who set it.
func printAll(w io.Writer, s settings.Settings) error {
	e := s.Effective
	mine := own(s)
	rows := map[string][2]string{}
	who := "operator"
	if s.TenantID != "" {
		who = "tenant"
	}
	put := func(name, value string, source *string) {
		from := ""
		if source != nil {
			from = *source
		} else if _, ok := mine[name]; ok {
			from = who
		}
		rows[name] = [2]string{value, from}
	}
	text := func(value *string) string {
		if value == nil {
			return "(hidden)"
		}
		return *value
	}
	if e.Model != nil {
		put("model", *e.Model, e.ModelSource)
	}
	put("supports_vision", e.SupportsVision, nil)
	if e.MaxIterations != nil {
		put("max_iterations", strconv.Itoa(*e.MaxIterations), nil)
	}
	if e.TokenBudget != nil {
		put("token_budget", strconv.FormatInt(*e.TokenBudget, 10), nil)
	}
	for name, p := range e.Providers {
		if p.BaseURLSource != nil {
			put(name+".base_url", text(p.BaseURL), p.BaseURLSource)
		}
		if p.KeySource != nil {
			put(name+".key", text(p.KeyHint), p.KeySource)
		}
	}
	for tool, decision := range e.Approval {
		put("approval."+tool, decision, nil)
	}
	var table [][]string
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table = append(table, []string{name, format.Printable(rows[name][0]), rows[name][1]})
	}
	return format.Table(w, []string{"NAME", "VALUE", "SET BY"}, table)
}

func set(daemon func() *client.Client) *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME=VALUE... [PROVIDER.key]",
		Short: "set some settings",
		Long: `A key of a provider is named without a value: it is read from the standard input, or
asked for on a terminal and not shown. What is not named stays as it is.

` + names,
		Example: `  cubby settings set anthropic.key
  pass show openai | cubby settings set model=openai/gpt-4o openai.key
  cubby settings set ollama.base_url=http://127.0.0.1:11434/v1 model=ollama/qwen3`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			assigned, err := parseAll(args)
			if err != nil {
				return err
			}
			for i, a := range assigned {
				switch {
				case a.given && a.field == "key":
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is on the command line, where other programs and your shell's history see it\n", a.name)
				case !a.given:
					value, err := tty.ReadValue(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), a.String())
					if err != nil {
						return err
					}
					if value == "" {
						return fmt.Errorf("%s: the value is empty", a.name)
					}
					assigned[i].value = value
				}
			}
			p := settings.Patch{}
			for _, a := range assigned {
				value, err := a.typed()
				if err != nil {
					return err
				}
				a.put(p, value)
			}
			if _, err := settings.New(daemon()).Change(cmd.Context(), p); err != nil {
				return err
			}
			for _, a := range assigned {
				fmt.Fprintln(cmd.OutOrStdout(), a.name)
			}
			return nil
		},
	}
}

func rm(daemon func() *client.Client) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "rm [flags] NAME...",
		Short: "remove some settings",
		Long:  "PROVIDER alone removes all that is set of a provider.\n\n" + names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 0) {
				return errors.New("give the names of settings, or --all")
			}
			if all {
				return settings.New(daemon()).Clear(cmd.Context())
			}
			p := settings.Patch{}
			for _, arg := range args {
				n, err := parseName(arg)
				if err != nil {
					return err
				}
				n.put(p, nil)
			}
			_, err := settings.New(daemon()).Change(cmd.Context(), p)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all settings, also such as the daemon cannot read any more")
	return cmd
}

func test(daemon func() *client.Client) *cobra.Command {
	return &cobra.Command{
		Use:   "test [PROVIDER/MODEL]",
		Short: "have a model answer something short",
		Long:  "Asks the model that is set, or another one.",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			model := ""
			if len(args) > 0 {
				model = args[0]
			}
			asked, err := settings.New(daemon()).Test(cmd.Context(), model)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), format.Printable(asked)+" answers")
			}
			return err
		},
	}
}

func models(daemon func() *client.Client) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "models [flags] [PROVIDER]",
		Short: "list the models of the providers that are set",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			provider := ""
			if len(args) > 0 {
				provider = args[0]
			}
			list, err := settings.New(daemon()).Models(cmd.Context(), provider)
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(cmd.OutOrStdout(), list)
			}
			for _, name := range slices.Sorted(maps.Keys(list.Errors)) {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", format.Printable(name), format.Printable(list.Errors[name]))
			}
			rows := make([][]string, len(list.Models))
			for i, m := range list.Models {
				tokens := ""
				if m.Context > 0 {
					tokens = strconv.Itoa(m.Context)
				}
				rows[i] = []string{format.Printable(m.ID), tokens, format.Printable(m.Name)}
			}
			return format.Table(cmd.OutOrStdout(), []string{"MODEL", "CONTEXT", "NAME"}, rows)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
