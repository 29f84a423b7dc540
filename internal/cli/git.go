package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
)

// gitFlags are what operations on a repository share.
type gitFlags struct {
	path   string
	asJSON bool

	username          string
	tokenIn, secretIn bool
}

func (a *app) gitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "git",
		Short: "work on repositories in a sandbox",
		Long: `Runs operations of git in a sandbox. What they need to log in at a remote is read
from the standard input, goes with the one operation, and is kept nowhere.`,
		Example: `  cubby git clone my-box https://github.com/owner/repo.git
  cubby git commit my-box -C repo -a -m 'Fix it'
  cubby git push my-box -C repo --token-stdin < token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.gitCloneCommand(), a.gitStatusCommand(), a.gitDiffCommand(), a.gitCommitCommand(), a.gitLogCommand(),
		a.gitCheckoutCommand(), a.gitPullCommand(), a.gitPushCommand())
	return cmd
}

// gitCommandOf makes the command of one operation. run prints its result for
// people and returns it for --json.
func (a *app) gitCommandOf(use, short string, args cobra.PositionalArgs, remote bool, run func(cmd *cobra.Command, f gitFlags, login client.GitLogin, args []string) (any, error)) *cobra.Command {
	var f gitFlags
	cmd := &cobra.Command{
		Use: use, Short: short, Args: args, ValidArgsFunction: a.completeIDs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			login, err := f.login(a.Stdin)
			if err != nil {
				return err
			}
			result, err := run(cmd, f, login, args)
			if err == nil && f.asJSON {
				err = format.JSON(a.Stdout, result)
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&f.path, "path", "C", "", "the repository's `directory` in the sandbox (default /workspace)")
	jsonFlag(cmd, &f.asJSON)
	if remote {
		cmd.Flags().StringVar(&f.username, "username", "", "`name` to log in with at the remote")
		cmd.Flags().BoolVar(&f.secretIn, "password-stdin", false, "read the password for it from the standard input")
		cmd.Flags().BoolVar(&f.tokenIn, "token-stdin", false, "read a token from the standard input; it needs no name")
		cmd.MarkFlagsMutuallyExclusive("password-stdin", "token-stdin")
	}
	return cmd
}

// login reads one line where it is asked to.
func (f gitFlags) login(in io.Reader) (client.GitLogin, error) {
	l := client.GitLogin{Username: f.username}
	if !f.tokenIn && !f.secretIn {
		return l, nil
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return l, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return l, errors.New("the standard input has no line to log in with")
	}
	if f.tokenIn {
		l.Token = line
	} else {
		l.Password = line
	}
	return l, nil
}

// say prints a line for people.
func (a *app) say(f gitFlags, text string, args ...any) {
	if !f.asJSON {
		fmt.Fprintln(a.Stdout, format.Printable(fmt.Sprintf(text, args...)))
	}
}

func short(commit string) string { return commit[:min(len(commit), 10)] }

func (a *app) gitCloneCommand() *cobra.Command {
	var branch string
	var depth int
	cmd := a.gitCommandOf("clone [flags] ID URL [DEST]", "copy a repository into the sandbox", cobra.RangeArgs(2, 3), true,
		func(cmd *cobra.Command, f gitFlags, login client.GitLogin, args []string) (any, error) {
			o := client.GitCloneOptions{GitLogin: login, Path: f.path, URL: args[1], Branch: branch, Depth: depth}
			if len(args) > 2 {
				o.Dest = args[2]
			}
			r, err := a.client().GitClone(cmd.Context(), args[0], o)
			if err == nil {
				a.say(f, "%s", r.Path)
			}
			return r, err
		})
	cmd.Flags().StringVarP(&branch, "branch", "b", "", "check out this `branch` or tag")
	cmd.Flags().IntVar(&depth, "depth", 0, "only so many `commits`")
	return cmd
}

func (a *app) gitStatusCommand() *cobra.Command {
	return a.gitCommandOf("status ID", "what differs from the last commit", cobra.ExactArgs(1), false,
		func(cmd *cobra.Command, f gitFlags, _ client.GitLogin, args []string) (any, error) {
			r, err := a.client().GitStatus(cmd.Context(), args[0], f.path)
			if err != nil {
				return r, err
			}
			a.say(f, "on %s", r.Branch)
			for _, file := range r.Files {
				a.say(f, "%-12s %-12s %s", file.Index, file.WorkTree, file.Path)
			}
			return r, nil
		})
}

func (a *app) gitDiffCommand() *cobra.Command {
	var staged bool
	cmd := a.gitCommandOf("diff [flags] ID [FILE…]", "changes that are not committed", cobra.MinimumNArgs(1), false,
		func(cmd *cobra.Command, f gitFlags, _ client.GitLogin, args []string) (any, error) {
			r, err := a.client().GitDiff(cmd.Context(), args[0], client.GitDiffOptions{Path: f.path, Staged: staged, Files: args[1:]})
			if err == nil && !f.asJSON && r.PatchEncoding == "" {
				_, err = io.WriteString(a.Stdout, r.Patch)
			}
			return r, err
		})
	cmd.Flags().BoolVar(&staged, "staged", false, "what the next commit would have")
	return cmd
}

func (a *app) gitCommitCommand() *cobra.Command {
	var o client.GitCommitOptions
	cmd := a.gitCommandOf("commit [flags] ID -m MESSAGE [FILE…]", "make a commit, with the files given", cobra.MinimumNArgs(1), false,
		func(cmd *cobra.Command, f gitFlags, _ client.GitLogin, args []string) (any, error) {
			o.Path, o.Files = f.path, args[1:]
			r, err := a.client().GitCommit(cmd.Context(), args[0], o)
			if err == nil {
				a.say(f, "%s %s", short(r.Commit), r.Subject)
			}
			return r, err
		})
	cmd.Flags().StringVarP(&o.Message, "message", "m", "", "the commit's `message`")
	cmd.Flags().BoolVarP(&o.All, "all", "a", false, "everything that differs, new files too")
	cmd.Flags().StringVar(&o.AuthorName, "author-name", "", "`name` of who commits (default: the sandbox's git config)")
	cmd.Flags().StringVar(&o.AuthorEmail, "author-email", "", "`address` of who commits")
	return cmd
}

func (a *app) gitLogCommand() *cobra.Command {
	var limit int
	cmd := a.gitCommandOf("log [flags] ID [BRANCH]", "list commits, newest first", cobra.RangeArgs(1, 2), false,
		func(cmd *cobra.Command, f gitFlags, _ client.GitLogin, args []string) (any, error) {
			o := client.GitLogOptions{Path: f.path, Limit: limit}
			if len(args) > 1 {
				o.Branch = args[1]
			}
			commits, err := a.client().GitLog(cmd.Context(), args[0], o)
			for _, c := range commits {
				a.say(f, "%s %s %s: %s", short(c.Commit), c.Author.Time.Format("2006-01-02"), c.Author.Name, c.Subject)
			}
			return commits, err
		})
	cmd.Flags().IntVarP(&limit, "limit", "n", 0, "so many `commits` (default 20)")
	return cmd
}

func (a *app) gitCheckoutCommand() *cobra.Command {
	var create bool
	cmd := a.gitCommandOf("checkout [flags] ID NAME", "switch to a branch, a tag or a commit", cobra.ExactArgs(2), false,
		func(cmd *cobra.Command, f gitFlags, _ client.GitLogin, args []string) (any, error) {
			r, err := a.client().GitCheckout(cmd.Context(), args[0], client.GitCheckoutOptions{Path: f.path, Name: args[1], Create: create})
			if err == nil {
				a.say(f, "on %s at %s", r.Branch, short(r.Commit))
			}
			return r, err
		})
	cmd.Flags().BoolVarP(&create, "create", "b", false, "make the branch first")
	return cmd
}

func (a *app) gitPullCommand() *cobra.Command {
	return a.gitCommandOf("pull [flags] ID [REMOTE [BRANCH]]", "fetch and merge", cobra.RangeArgs(1, 3), true,
		func(cmd *cobra.Command, f gitFlags, login client.GitLogin, args []string) (any, error) {
			args = append(args, "", "")
			r, err := a.client().GitPull(cmd.Context(), args[0], client.GitPullOptions{GitLogin: login, Path: f.path, Remote: args[1], Branch: args[2]})
			if err == nil {
				a.say(f, "on %s at %s", r.Branch, short(r.Commit))
			}
			return r, err
		})
}

func (a *app) gitPushCommand() *cobra.Command {
	var force bool
	cmd := a.gitCommandOf("push [flags] ID [REMOTE [BRANCH]]", "send a branch to a remote", cobra.RangeArgs(1, 3), true,
		func(cmd *cobra.Command, f gitFlags, login client.GitLogin, args []string) (any, error) {
			args = append(args, "", "")
			r, err := a.client().GitPush(cmd.Context(), args[0], client.GitPushOptions{
				GitLogin: login, Path: f.path, Remote: args[1], Branch: args[2], Force: force,
			})
			for _, ref := range r.Refs {
				a.say(f, "%s %s %s", ref.To, ref.Status, ref.Summary)
			}
			return r, err
		})
	cmd.Flags().BoolVar(&force, "force", false, "although the remote has commits that are missing here")
	return cmd
}
