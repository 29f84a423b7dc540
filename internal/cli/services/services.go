// Package services is what the commands about the services of a sandbox do, and how
// a service is written on a command line.
package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// Env is what the commands need.
type Env struct {
	Client   func() *client.Client
	Complete cobra.CompletionFunc              // of a sandbox's id
	Usage    func(*cobra.Command, error) error // makes an error one of usage
	// Log prints the output of an exec.
	Log func(cmd *cobra.Command, p *client.Process, after int64, follow, asJSON bool) error
}

// Command is that of services.
func Command(a Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "services ID",
		Short: "list the services of a sandbox, start, stop and restart them, read their output",
		Long: `Lists the services of a sandbox and how they stand. It wakes nothing. Services are
declared with "cubby create --service" and changed with "cubby services set".`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := a.Client().Services(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case asJSON:
				return format.JSON(cmd.OutOrStdout(), map[string]any{"services": list})
			}
			return show(cmd.OutOrStdout(), list)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(
		a.act("start", "start a service, also one that was given up", (*client.Client).StartService),
		a.act("stop", "stop a service", (*client.Client).StopService),
		a.act("restart", "stop a service if it runs, and start it", (*client.Client).RestartService),
		a.logs(), a.set(),
	)
	return cmd
}

func show(out io.Writer, list []client.Service) error {
	rows := make([][]string, len(list))
	for i, s := range list {
		pid, port, last := "", "", ""
		if s.PID != 0 {
			pid = strconv.FormatInt(s.PID, 10)
		}
		if s.Port != 0 {
			port = strconv.Itoa(s.Port)
		}
		switch {
		case s.ExitCode != nil:
			last = fmt.Sprintf("%s %d", s.ExitReason, *s.ExitCode)
		case s.ExitReason != "":
			last = s.ExitReason
		}
		rows[i] = []string{s.Name, s.State, pid, strconv.Itoa(s.Restarts), last, port, s.URL}
	}
	if err := format.Table(out, []string{"NAME", "STATE", "PID", "RESTARTS", "LAST EXIT", "PORT", "URL"}, rows); err != nil {
		return err
	}
	for _, s := range list {
		if s.Reason != "" {
			fmt.Fprintf(out, "%s: %s\n", s.Name, s.Reason)
		}
	}
	return nil
}

func (a Env) act(verb, short string, do func(*client.Client, context.Context, string, string) (client.Service, error)) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: verb + " ID NAME", Short: short, Args: cobra.ExactArgs(2), ValidArgsFunction: a.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := do(a.Client(), cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if asJSON {
				return format.JSON(cmd.OutOrStdout(), s)
			}
			fmt.Fprintln(cmd.OutOrStdout(), s.State)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a Env) logs() *cobra.Command {
	var follow, asJSON bool
	cmd := &cobra.Command{
		Use:   "logs [flags] ID NAME",
		Short: "print what the last run of a service printed",
		Long: `Prints the output of the last run of a service. With -f it goes on until that run
ends. "cubby logs ID SEQ" prints that of an earlier run.`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: a.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := a.Client()
			s, err := c.Service(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if s.Exec == 0 {
				return fmt.Errorf("the service %s has not run yet: it is %s", s.Name, s.State)
			}
			return a.Log(cmd, c.Process(args[0], s.Exec), 0, follow, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run ends")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the run with its output as JSON; with -f one line per piece")
	return cmd
}

func (a Env) set() *cobra.Command {
	var asJSON bool
	var flags []string
	cmd := &cobra.Command{
		Use:   "set [flags] ID",
		Short: "change the services of a sandbox",
		Long: `Makes the given services those of a sandbox; without --service it has none from
then on. Those that stay the same run on, the others are restarted, started and
stopped. Values of --service are those of "cubby create".`,
		Example: "  cubby services set --service 'web,port=3000=npm start' my-box",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := Parse(flags)
			if err != nil {
				return a.Usage(cmd, err)
			}
			if list == nil {
				list = []client.ServiceSpec{}
			}
			box, err := a.Client().Update(cmd.Context(), args[0], client.Patch{Services: &list})
			if err != nil || !asJSON {
				return err
			}
			return format.JSON(cmd.OutOrStdout(), box)
		},
	}
	Flag(cmd, &flags)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// Flag declares --service.
func Flag(cmd *cobra.Command, to *[]string) {
	cmd.Flags().StringArrayVar(to, "service", nil, "command that runs for as long as the sandbox does, as "+
		"`NAME[,OPTION=VALUE…]=COMMAND`: options are port, cwd, restart (always, on_failure or never), requires and env.KEY; repeatable")
}

// Parse reads values of --service. The options come before the command, which
// may have any character.
func Parse(flags []string) ([]client.ServiceSpec, error) {
	var list []client.ServiceSpec
	for _, flag := range flags {
		s, err := parse(flag)
		if err != nil {
			return nil, fmt.Errorf("service %q: %w", flag, err)
		}
		list = append(list, s)
	}
	return list, nil
}

var errForm = errors.New("not NAME[,OPTION=VALUE…]=COMMAND, as web,port=3000=npm run dev")

func parse(flag string) (s client.ServiceSpec, err error) {
	name, rest, ok := cutEither(flag)
	if s.Name = name; !ok || name == "" {
		return s, errForm
	}
	for options := flag[len(name)] == ','; options; {
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			return s, errForm
		}
		word, left, ok := cutEither(value)
		if !ok {
			return s, errForm
		}
		options, rest = value[len(word)] == ',', left
		switch variable, isEnv := strings.CutPrefix(key, "env."); {
		case isEnv:
			if s.Env == nil {
				s.Env = map[string]string{}
			}
			s.Env[variable] = word
		case key == "port":
			if s.Port, err = strconv.Atoi(word); err != nil {
				return s, fmt.Errorf("%q is no port", word)
			}
		case key == "cwd":
			s.Cwd = word
		case key == "restart":
			s.Restart = word
		case key == "requires":
			s.Requires = word
		default:
			return s, fmt.Errorf("there is no option %q", key)
		}
	}
	if s.Command = rest; rest == "" {
		return s, errForm
	}
	return s, nil
}

// cutEither cuts at the first comma or equals sign.
func cutEither(s string) (before, after string, ok bool) {
	if i := strings.IndexAny(s, ",="); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
