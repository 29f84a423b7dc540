package daemon_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestSecretsStayOut uses a daemon with secrets of every sort and searches
// everything that it wrote for them, but for the sandboxes' own disks: the
// database with its log, the journals, the log, and what the API tells.
func TestSecretsStayOut(t *testing.T) {
	secrets := map[string]string{
		"token":       "hush-a1c44e0e",
		"sandbox env": "hush-5be00d21",
		"exec env":    "hush-77f3a9c0",
		"stdin":       "hush-c0ffee42",
		"contents":    "hush-09ab1177",
		"wrong token": "hush-dead0bad",
		"secret":      "hush-3e77ed00",
	}
	d := daemontest.Start(t, daemontest.Options{Config: func(c *config.Config) { c.Tokens = config.Secret("alice:" + secrets["token"]) }})
	c := client.New(d.URL, client.WithToken(secrets["token"]))
	defer c.Close()
	ctx := t.Context()

	if _, err := client.New(d.URL, client.WithToken(secrets["wrong token"])).Create(ctx, client.CreateOptions{}); err == nil {
		t.Error("a wrong token was let in")
	}
	box, err := c.Create(ctx, client.CreateOptions{ID: "box", Env: map[string]string{"KEY": secrets["sandbox env"]}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.SetSecret(ctx, "acme", "API_KEY", secrets["secret"]); err != nil {
		t.Error(err)
	}
	if _, err := c.SetSecret(ctx, "acme", "A-B", secrets["secret"]); !errors.Is(err, client.InvalidRequest) {
		t.Errorf("a bad name of a secret: %v", err)
	}
	o := client.Shell(`test -n "$KEY" && test -n "$OTHER" && exit 7`)
	o.Env = map[string]string{"OTHER": secrets["exec env"]}
	if e, err := c.Exec(ctx, box.ID, o); err != nil || e.ExitCode == nil || *e.ExitCode != 7 {
		t.Errorf("Exec = %+v, %v", e, err)
	}
	o = client.Shell("cat >/dev/null")
	o.Stdin = true
	o.Env = map[string]string{"OTHER": secrets["exec env"]}
	p, err := c.StartExec(ctx, box.ID, o)
	if err != nil {
		t.Fatal(err)
	}
	in := p.Stdin(ctx)
	if _, err := in.Write([]byte(secrets["stdin"])); err != nil {
		t.Error(err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.Files(box.ID).Write(ctx, "note", strings.NewReader(secrets["contents"]), client.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.Update(ctx, box.ID, client.Patch{Labels: map[string]string{"a": "b"}}); err != nil {
		t.Error(err)
	}
	// The env has to be there after a stop.
	if _, err := c.Stop(ctx, box.ID, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(ctx, box.ID); err != nil {
		t.Fatal(err)
	}
	if e, err := c.Exec(ctx, box.ID, client.Shell(`test "$KEY" = "hush-$REST"`)); err != nil || e.ExitCode == nil || *e.ExitCode != 1 {
		t.Errorf("Exec = %+v, %v", e, err)
	}
	if e, err := c.Exec(ctx, box.ID, client.Shell(`test ${#KEY} = 13`)); err != nil || e.ExitCode == nil || *e.ExitCode != 0 {
		t.Errorf("the env after a start: %+v, %v", e, err)
	}
	// Also what was left by a daemon that goes on in the middle of things.
	o = client.Shell("sleep 300")
	o.Env = map[string]string{"OTHER": secrets["exec env"]}
	if _, err := c.StartExec(ctx, box.ID, o); err != nil {
		t.Fatal(err)
	}
	searchForSecrets(t, d, secrets)

	events, _, err := c.Events(ctx, box.ID, 0, 1000)
	if err != nil || len(events) < 8 {
		t.Errorf("Events = %d, %v", len(events), err)
	}
	for _, e := range events {
		for what, value := range secrets {
			if text := e.Kind + e.Actor + string(e.Payload) + string(e.Result); strings.Contains(text, value) {
				t.Errorf("the %s is in the event %s", what, text)
			}
		}
	}
	if err := c.Destroy(ctx, box.ID); err != nil {
		t.Error(err)
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	searchForSecrets(t, d, secrets)
}

func searchForSecrets(t *testing.T, d *daemontest.Daemon, secrets map[string]string) {
	t.Helper()
	seen := map[string]bool{}
	err := filepath.WalkDir(d.Dir, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(d.Dir, path)
		if os.IsNotExist(err) || name == "disks" || name == "images" {
			return fs.SkipDir
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		seen[strings.Split(name, string(filepath.Separator))[0]] = true
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		for what, value := range secrets {
			if bytes.Contains(text, []byte(value)) {
				t.Errorf("the %s is in %s", what, name)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if !seen["cubby.db"] || !seen["journals"] {
		t.Errorf("searched only %v", seen)
	}
	log := d.Log()
	for what, value := range secrets {
		if strings.Contains(log, value) {
			t.Errorf("the %s is in the log", what)
		}
	}
	if !strings.Contains(log, "box") {
		t.Error("the log was not searched")
	}
}
