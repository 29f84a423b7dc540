package guest_test

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/guestd"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// homed gives an agent a home and a workspace of its own.
func homed(t *testing.T, c *guestd.Config) {
	dirs := map[string]string{sandbox.HomeDir: t.TempDir(), sandbox.WorkspaceDir: t.TempDir()}
	c.MapPath = func(path string) string {
		if dir, ok := dirs[path]; ok {
			return dir
		}
		return path
	}
}

func TestSessionCommands(t *testing.T) {
	both := map[string]func(*guestd.Config){"plain": func(*guestd.Config) {}, "supervised": supervised(t)}
	for name, launch := range both {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(c *guestd.Config) { homed(t, c); launch(c) })
			tests := []struct {
				spec sandbox.ExecSpec
				want string
				code int
			}{
				{spec: sandbox.ExecSpec{Shell: "export A=1; cd /; echo $SECRET; exit 3", Env: map[string]string{"SECRET": "s", "A": "own"}}, want: "s\n", code: 3},
				{spec: sandbox.ExecSpec{Shell: "echo $? $A ${SECRET-none}; pwd"}, want: "3 1 none\n/\n"},
				{spec: sandbox.ExecSpec{Shell: "pwd; tty -s && echo $TERM", Cwd: "/usr", PTY: &sandbox.WindowSize{Cols: 80, Rows: 24}}, want: "/usr\r\nxterm-256color\r\n"},
				{spec: sandbox.ExecSpec{Argv: []string{"sh", "-c", "pwd; echo $A"}}, want: "/\n1\n"},
			}
			for _, tt := range tests {
				tt.spec.Session = "main"
				r := h.run(t, tt.spec)
				if string(r.stdout) != tt.want || r.exit == nil || *r.exit.Code != tt.code {
					t.Errorf("%s%q wrote %q, exit %+v, want %q, %d", tt.spec.Shell, tt.spec.Argv, r.stdout, r.exit, tt.want, tt.code)
				}
			}
			r := h.run(t, sandbox.ExecSpec{Shell: "true", Session: "main", Cwd: "/nowhere"})
			if r.exit == nil || r.exit.Reason != sandbox.EndNotRun {
				t.Errorf("in a directory that is not there it ended %+v, want not_started", r.exit)
			}
		})
	}
}
