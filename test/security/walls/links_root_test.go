//go:build root

package walls_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
)

// A caller who wrote to a file of the sandbox's user that was a link to /usr/local/bin
// gave that user a program there, which root ran.
func TestALinkOfTheUsersDoesNotGiveThemAProgramOfRoots(t *testing.T) {
	sandboxesWith(t, client.CreateOptions{}, func(t *testing.T, c *client.Client, id string) {
		run := func(user, line string) string {
			t.Helper()
			x, err := c.Exec(t.Context(), id, client.ExecOptions{Shell: line, User: user})
			if err != nil {
				t.Fatal(err)
			}
			return x.Stdout
		}
		run("", `cd /workspace
ln -s /usr/local/bin/git notes.txt; ln -s /usr/local/bin out; ln -s /root/.config settings; ln -s /etc/profile.d/a.sh log
printf '#!/bin/sh\nid -u >> /workspace/ran\n' > mine; chmod 755 mine; cp mine own; touch theirs; ln -s theirs friend`)
		var archive bytes.Buffer
		tw := tar.NewWriter(&archive)
		if err := errors.Join(tw.WriteHeader(&tar.Header{Name: "sed", Mode: 0o755, Typeflag: tar.TypeReg}), tw.Close()); err != nil {
			t.Fatal(err)
		}
		f := c.Files(id)
		write := func(name string) error {
			_, err := f.Write(t.Context(), name, strings.NewReader("of the caller's\n"), client.WriteOptions{})
			return err
		}
		for name, change := range map[string]func() error{
			"a link":                 func() error { return write("/workspace/notes.txt") },
			"a link that is written": func() error { _, err := f.Append(t.Context(), "/workspace/log", strings.NewReader("x")); return err },
			"a directory":            func() error { return write("/workspace/out/ls") },
			"a directory of root's":  func() error { return write("/workspace/settings/git/config") },
			"a move":                 func() error { _, err := f.Move(t.Context(), "/workspace/mine", "/workspace/out/env", true); return err },
			"an archive":             func() error { return f.Extract(t.Context(), "/workspace/out", &archive) },
		} {
			if err := change(); err == nil {
				t.Errorf("%s: it was done", name)
			}
		}
		if err := write("/workspace/friend"); err != nil {
			t.Errorf("a link to a file of theirs: %v", err)
		}
		run("", `for p in git ls env sed; do cat /workspace/own > /usr/local/bin/$p; chmod 755 /usr/local/bin/$p; done 2> /dev/null
mkdir -p /root/.config/git && printf '[core]\n\tfsmonitor = /workspace/own\n' > /root/.config/git/config; echo /workspace/own >> /etc/profile.d/a.sh`)
		run("root", "git --version; ls; env; echo | sed p; bash -lc true")
		if got := run("", "cat /workspace/ran; find /usr/local/bin /root /etc/profile.d -user 1000 2> /dev/null"); got != "" {
			t.Errorf("root ran theirs as %q", got)
		}
	})
}
