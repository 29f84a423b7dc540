//go:build root

package walls_test

import (
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
)

// The state of a session shell is code. Root's was in the home of the sandbox's user,
// who could put another one in its place between the look at it and its load.
func TestTheUserDoesNotReplaceTheStateOfRootsSession(t *testing.T) {
	sandboxesWith(t, client.CreateOptions{}, func(t *testing.T, c *client.Client, id string) {
		run := func(o client.ExecOptions) string {
			t.Helper()
			x, err := c.Exec(t.Context(), id, o)
			if err != nil {
				t.Fatal(err)
			}
			return x.Stdout
		}
		run(client.ExecOptions{Shell: "mine=kept", Session: "s", User: "root"})
		run(client.ExecOptions{Shell: "theirs=kept", Session: "s"})
		run(client.ExecOptions{Shell: `
mkdir -p ~/.cubby; mv ~/.cubby ~/moved
mkdir -p ~/.cubby/sessions/0/s; echo 'mine=replaced __cubby_loaded=yes' > ~/.cubby/sessions/0/s/state
rm -rf /var/lib/cubby; mv /var/lib/cubby /var/lib/moved`})
		if got := run(client.ExecOptions{Shell: "echo $mine; find /home/sandbox -user 0 -name state", Session: "s", User: "root"}); got != "kept\n" {
			t.Errorf("root's session says %q", got)
		}
		sessions, err := c.Sessions(t.Context(), id)
		if err != nil || len(sessions) != 1 || sessions[0].Name != "s" {
			t.Errorf("the sessions are %+v, %v", sessions, err)
		}
		if err := c.ForgetSession(t.Context(), id, "s"); err != nil {
			t.Error(err)
		}
		if got := run(client.ExecOptions{Shell: "echo ${mine-none}", Session: "s", User: "root"}); got != "none\n" {
			t.Errorf("a session that was forgotten says %q", got)
		}
	})
}

// Root's session shell saved its state with the mv of /usr/local/bin, which is another
// user's in some images: root's PATH leaves it out there.
func TestRootsSessionTakesNoProgramsOfAnotherUser(t *testing.T) {
	sandboxesWith(t, client.CreateOptions{}, func(t *testing.T, c *client.Client, id string) {
		run := func(o client.ExecOptions) string {
			t.Helper()
			x, err := c.Exec(t.Context(), id, o)
			if err != nil {
				t.Fatal(err)
			}
			return x.Stdout
		}
		run(client.ExecOptions{Shell: "chown 1000 /usr/local/bin", User: "root"})
		run(client.ExecOptions{Shell: `
printf '#!/bin/sh\necho ran-as-$(/usr/bin/id -u) >> /workspace/ran\nexec /usr/bin/${0##*/} "$@"\n' > /usr/local/bin/mv
chmod 755 /usr/local/bin/mv; for p in env bash rm; do cp /usr/local/bin/mv /usr/local/bin/$p; done`})
		run(client.ExecOptions{Shell: "mine=kept", Session: "s", User: "root"})
		if got := run(client.ExecOptions{Shell: "echo $mine", Session: "s", User: "root"}); got != "kept\n" {
			t.Errorf("the session says %q", got)
		}
		// It cannot be read: the shell begins anew.
		run(client.ExecOptions{Shell: `sed -i '/^__cubby_loaded/d' /var/lib/cubby/sessions/0/s/state`, User: "root"})
		run(client.ExecOptions{Shell: "true", Session: "s", User: "root"})
		if got := run(client.ExecOptions{Shell: "cat /workspace/ran"}); strings.Contains(got, "ran-as-0") || !strings.Contains(got, "ran-as-1000") {
			t.Errorf("theirs ran as %q, and not only as themselves", got)
		}
	})
}
