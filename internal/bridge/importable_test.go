package bridge_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/bridge"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

func fileWith(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// imported imports one file and returns what is told of it.
func (b bridged) imported(t *testing.T, id, source string) (ok bool, message string) {
	t.Helper()
	out := b.good(t, "import_files", object{"session_id": id, "files": []any{object{"source": source}}})
	f := out["files"].([]any)[0].(object)
	message, _ = f["error"].(string)
	return f["success"] == true, message
}

// TestModelReadsTheUsersFiles: import_files took ~/.ssh/id_rsa, and
// /proc/self/environ with the bridge's token in it.
func TestModelReadsTheUsersFiles(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	home := t.TempDir()
	t.Setenv("HOME", home)
	secret := fileWith(t, filepath.Join(home, ".ssh/id_rsa"), "SECRET")
	work := filepath.Join(home, "work")
	fileWith(t, filepath.Join(work, "report.csv"), "1,2")
	data := filepath.Join(work, "cubby")
	fileWith(t, filepath.Join(data, "cubby.db"), "SECRET")
	for name, target := range map[string]string{
		"key": secret, "up": "../.ssh/id_rsa", "ssh": "../.ssh", "environ": "/proc/self/environ", "again": "report.csv",
	} {
		if err := os.Symlink(target, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(work, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name, cwd  string
		dirs       []string
		roots      []string
		works, not []string
	}{
		{"in the home directory", home, nil, nil, nil, []string{"~/.ssh/id_rsa", secret, ".ssh/id_rsa", "work/report.csv", "/proc/self/environ", "/etc/passwd"}},
		{"above the home directory", filepath.Dir(home), nil, nil, nil, []string{secret, filepath.Join(work, "report.csv")}},
		{"at the root", "/", nil, nil, nil, []string{secret, "etc/passwd", "proc/self/environ"}},
		{"in a directory of work", work, nil, nil, []string{"report.csv", "~/work/report.csv", "again"},
			[]string{"~/.ssh/id_rsa", "../.ssh/id_rsa", "key", "up", "ssh", "ssh/id_rsa", "environ", "pipe", "cubby/cubby.db", "cubby", "/proc/self/environ", "/proc/self/cwd/../.ssh/id_rsa"}},
		{"with --import-dir", home, []string{"~/work"}, nil, []string{"~/work/report.csv", "work/report.csv"}, []string{"~/.ssh/id_rsa", "work/key", "work/cubby/cubby.db"}},
		{"with --import-dir /", home, []string{"/"}, nil, []string{secret}, []string{"/proc/self/environ", "/sys/kernel/uevent_seqnum", "/dev/null", "/proc/self/root/proc/self/environ", "work/cubby"}},
		{"with the client's roots", home, nil, []string{work}, []string{filepath.Join(work, "report.csv")}, []string{secret, filepath.Join(work, "key")}},
	} {
		for _, version := range versions {
			t.Run(tt.name+"/"+version, func(t *testing.T) {
				t.Chdir(tt.cwd)
				b := startWith(t, bridge.Config{Daemon: at(d.URL), ImportDirs: tt.dirs, NeverImport: []string{data}}, version, sdk.ClientOptions{}, tt.roots)
				id := b.good(t, "create_session", object{})["session_id"].(string)
				defer b.good(t, "stop_session", object{"session_id": id})
				for _, source := range tt.works {
					if ok, message := b.imported(t, id, source); !ok {
						t.Errorf("%s: %s", source, message)
					}
				}
				for _, source := range tt.not {
					if ok, message := b.imported(t, id, source); ok || message == "" {
						t.Errorf("%s was imported", source)
					}
				}
			})
		}
	}
	t.Run("the refusal says how", func(t *testing.T) {
		t.Chdir(home)
		b := start(t, at(d.URL), "", sdk.ClientOptions{})
		id := b.good(t, "create_session", object{})["session_id"].(string)
		if _, message := b.imported(t, id, secret); !strings.Contains(message, "--import-dir") {
			t.Errorf("the refusal is %q", message)
		}
	})
}
