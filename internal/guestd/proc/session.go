package proc

import (
	"os"
	"slices"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/sandbox"
	"github.com/cubbyhq/cubby/internal/session"
)

// inSession makes c, of which account and dir are known, the process of a
// session shell that runs the command.
func (c *command) inSession(cfg Config, start *guestv1.ExecStart) error {
	c.env = environment(cfg.Env, &guestv1.ExecStart{}, c.account)
	var err error
	if c.path, err = lookPath("bash", *c); err != nil {
		return cannotStart(CodeNotFound, "a session needs bash, and the image has none that user %s can run", c.account.name)
	}
	uid, gid := int(c.account.UID), int(c.account.GID)
	if cfg.OneUser {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	top, below := cfg.MapPath(sandbox.HomeDir), session.Dir
	if uid != sandbox.UserID && !cfg.OneUser {
		top, below = cfg.MapPath("/"), session.OthersDir
	}
	dir, note := session.Open(top, below, start.GetSession(), uid, gid)
	in := session.Command{
		Name: start.GetSession(), Shell: start.GetShell(), Argv: start.GetArgv(),
		Dir: dir, Note: note, Workspace: cfg.MapPath(workspace),
		Base: c.env, Env: start.GetEnv(),
	}
	if c.account.UID == 0 {
		in.Env = slices.Clone(in.Env)
		for i, kv := range in.Env {
			in.Env[i] = rootVariable(kv)
		}
	}
	if start.GetCwd() != "" {
		in.Cwd = c.dir
	}
	if start.GetPty() != nil {
		in.Env = append([]string{terminalType}, in.Env...)
	}
	c.argv, c.env = in.Line()
	return nil
}
