package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
)

func (a *app) runCommand() *cobra.Command {
	var box boxFlags
	var ex execFlags
	var keep bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- command [args…]",
		Short: "run a command in a sandbox of its own, then destroy it",
		Long: `Creates a sandbox, runs one command in it, and destroys it, also after Ctrl-C.

Output is streamed. Input is handed on when it is a pipe or a file, and with -i.
Ctrl-C and SIGTERM go to the command; a second one ends it at once. The exit code
is the command's own (128 + n when signal n ended it), and 125 when cubby itself
failed.`,
		Example: `  cubby run -- python3 -c 'print(1+1)'
  cubby run --isolation container -- uname -a
  cat data.json | cubby run -- jq .name
  cubby run -t -- bash`,
		Annotations: map[string]string{ownExit: "yes"},
		Args:        needCommand(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			return own(a.run(cmd, &box, &ex, keep, args))
		},
	}
	cmd.Flags().SetInterspersed(false)
	box.register(cmd)
	ex.register(cmd, false)
	cmd.Flags().BoolVar(&keep, "keep", false, "leave the sandbox there afterwards and name it")
	return cmd
}

func (a *app) run(cmd *cobra.Command, flags *boxFlags, ex *execFlags, keep bool, args []string) error {
	o, err := flags.options(a, cmd)
	if err != nil {
		return err
	}
	if o.ID == "" {
		// An id that is known before the create can be destroyed whatever
		// happens to the answer.
		o.ID = "run-" + randomName()
	}
	exec, err := ex.options(a, cmd, args)
	if err != nil {
		return err
	}
	exec.Env, exec.User = nil, "" // the sandbox has them

	// From here on a signal must not leave a sandbox behind, so nothing below
	// ends by the default.
	var early atomic.Pointer[os.Signal]
	ctx := context.WithoutCancel(cmd.Context())
	creating, endCreate := context.WithCancel(ctx)
	defer endCreate()
	giveBack := a.takeSignals(func(sig os.Signal) {
		early.Store(&sig)
		if len(o.Dependencies) > 0 {
			endCreate() // which may take minutes
		}
	})
	defer giveBack()
	c := a.client()

	if _, err := c.Create(creating, o); err != nil {
		if sig := early.Load(); sig != nil && creating.Err() != nil {
			err = &codeError{exitSignal + signalNumber(*sig), nil}
		}
		if errors.Is(err, client.Unreachable) || creating.Err() != nil {
			err = a.destroyAfter(ctx, c, o.ID, err) // the answer may be what was lost
		}
		return err
	}
	if keep {
		defer a.note("kept sandbox %s", o.ID)
	}
	finish := func(err error) error {
		if keep {
			return err
		}
		return a.destroyAfter(ctx, c, o.ID, err)
	}
	if sig := early.Load(); sig != nil {
		return finish(&codeError{exitSignal + signalNumber(*sig), nil})
	}
	p, err := c.StartExec(ctx, o.ID, exec)
	if err != nil {
		return finish(err)
	}
	return finish(a.attach(ctx, p, ex.attachment(a, exec)))
}

// destroyAfter removes the sandbox and returns err, or why the removal failed.
func (a *app) destroyAfter(ctx context.Context, c *client.Client, id string, err error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	derr := c.Destroy(ctx, id)
	switch {
	case derr == nil, errors.Is(derr, client.NotFound):
	case errors.Is(err, client.Unreachable):
	default:
		a.note("sandbox %s may be left behind: %v", id, derr)
	}
	return err
}

func randomName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// needCommand wants a command after so many other arguments.
func needCommand(before int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < before {
			return errors.New("which sandbox? give its id")
		}
		if len(args) == before {
			return errors.New("which command? give it after --")
		}
		if strings.HasPrefix(args[before], "-") && args[before] != "--" && before == 0 {
			return errors.New("put -- before the command")
		}
		return nil
	}
}
