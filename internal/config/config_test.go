package config_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestDefaultsAreSafe(t *testing.T) {
	c, err := config.Load(nil, []string{"PATH=/bin", "CUBBY_URL=http://x", "CUBBY_TOKEN=t"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:9090" || c.AuthDisabled || c.Images() != "/var/lib/cubby/images" {
		t.Errorf("defaults = %+v", c)
	}
	if !reflect.DeepEqual(c, config.Default()) {
		t.Errorf("Load(nil, nil) = %+v, Default() = %+v", c, config.Default())
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "listen = '127.0.0.1:1'\nmax-sandboxes = 7\negress-allow = ['a.example', 'b.example:8080']\nmin-free-memory = '1GiB'\ndisk-pool = 9\n")
	c, err := config.Load(
		[]string{"--listen=127.0.0.1:3", "--config", file},
		[]string{"CUBBY_LISTEN=127.0.0.1:2", "CUBBY_DISK_POOL=8", "CUBBY_DATA_DIR="},
	)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.DiskPool != 8 || c.MaxSandboxes != 7 || c.DataDir != "/var/lib/cubby" {
		t.Errorf("got %+v: flags must win over environment over file over defaults", c)
	}
	if got, want := c.EgressAllow, []string{"a.example", "b.example:8080"}; !reflect.DeepEqual(got, want) {
		t.Errorf("egress-allow = %q, want %q", got, want)
	}
	if c.MinFreeMemory != 1<<30 {
		t.Errorf("min-free-memory = %d, want %d", c.MinFreeMemory, 1<<30)
	}
}

func TestFileFromEnvironment(t *testing.T) {
	file := write(t, "history-retention = '24h'\nlog-level = 'debug'\n")
	c, err := config.Load(nil, []string{"CUBBY_CONFIG=" + file})
	if err != nil {
		t.Fatal(err)
	}
	if c.HistoryRetention != 24*time.Hour || c.LogLevel != slog.LevelDebug {
		t.Errorf("got retention %v, level %v", c.HistoryRetention, c.LogLevel)
	}
}

func TestBadInputIsAStartUpError(t *testing.T) {
	tests := []struct {
		name, mention string
		args, env     []string
		file          string
	}{
		{name: "unknown flag", args: []string{"--lisen=x"}, mention: "lisen"},
		{name: "argument", args: []string{"extra"}, mention: "extra"},
		{name: "unknown variable", env: []string{"CUBBY_LISEN=x"}, mention: "CUBBY_LISEN"},
		{name: "unknown key in the file", file: "lisen = 'x'", mention: "lisen"},
		{name: "table in the file", file: "[listen]\na = 1", mention: "listen"},
		{name: "broken file", file: "listen = ", mention: "cubby.toml"},
		{name: "missing file", args: []string{"--config=/does/not/exist"}, mention: "exist"},
		{name: "file names a file", file: "config = 'x'", mention: "config"},
		{name: "bad number", env: []string{"CUBBY_MAX_SANDBOXES=many"}, mention: "max-sandboxes"},
		{name: "no sandboxes", args: []string{"--max-sandboxes=0"}, mention: "max-sandboxes"},
		{name: "negative bound", args: []string{"--max-per-tenant=-1"}, mention: "max-per-tenant"},
		{name: "bad idle policy", env: []string{"CUBBY_IDLE_POLICY=nap"}, mention: "idle-policy"},
		{name: "negative idle timeout", args: []string{"--idle-timeout=-1s"}, mention: "idle-timeout"},
		{name: "endless lifetime", args: []string{"--max-lifetime=100000h"}, mention: "max-lifetime"},
		{name: "bad shutdown", args: []string{"--on-shutdown=sleep"}, mention: "on-shutdown"},
		{name: "bad size", args: []string{"--disk-reserve=lots"}, mention: "disk-reserve"},
		{name: "negative size", args: []string{"--disk-reserve=-1"}, mention: "disk-reserve"},
		{name: "bad duration", args: []string{"--history-retention=7"}, mention: "history-retention"},
		{name: "bad bool", env: []string{"CUBBY_AUTH_DISABLED=maybe"}, mention: "auth-disabled"},
		{name: "bad level", args: []string{"--log-level=loud"}, mention: "log-level"},
		{name: "bad format", args: []string{"--log-format=xml"}, mention: "log-format"},
		{name: "no port", args: []string{"--listen=127.0.0.1"}, mention: "listen"},
		{name: "bad port", args: []string{"--listen=127.0.0.1:http"}, mention: "listen"},
		{name: "no data dir", args: []string{"--data-dir="}, mention: "data-dir"},
		{name: "cert without key", args: []string{"--tls-cert=x"}, mention: "tls-key"},
		{name: "NaN overcommit", args: []string{"--disk-overcommit=NaN"}, mention: "disk-overcommit"},
		{name: "all interfaces without tokens", args: []string{"--listen=0.0.0.0:9090"}, mention: "tokens"},
		{name: "every address without tokens", args: []string{"--listen=:9090"}, mention: "tokens"},
		{name: "a name without tokens", args: []string{"--listen=cubby.example:9090"}, mention: "tokens"},
		{name: "auth disabled beyond loopback", args: []string{"--listen=[::]:1", "--tokens=a:b", "--auth-disabled"}, mention: "disabled"},
		{name: "tokens differ", env: []string{"CUBBY_TOKENS=a:b", "SANDBOXD_API_TOKENS=c:d"}, mention: "SANDBOXD_API_TOKENS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			args := tt.args
			if tt.file != "" {
				args = append(args, "--config="+write(t, tt.file))
			}
			c, err := config.Load(args, tt.env)
			if !errors.Is(err, errs.Invalid) {
				t.Fatalf("Load = %+v, %v, want invalid", c, err)
			}
			if !strings.Contains(err.Error(), tt.mention) {
				t.Errorf("error %q does not mention %q", err, tt.mention)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	if _, err := config.Load([]string{"--help"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("Load(--help) = %v, want flag.ErrHelp", err)
	}
}

func TestListenBeyondLoopbackWithTokens(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:9090", ":9090", "[::]:0", "192.0.2.1:80"} {
		c, err := config.Load([]string{"--listen=" + listen}, []string{"CUBBY_TOKENS=alice:s3cret"})
		if err != nil || !c.Authenticated() {
			t.Errorf("listen %s: %v, authenticated %v", listen, err, c.Authenticated())
		}
	}
}

func TestSandboxedVariables(t *testing.T) {
	tests := []struct {
		env  []string
		want bool
	}{
		{[]string{"SANDBOXD_API_AUTH_DISABLED=false", "SANDBOXD_API_TOKENS=name:secret"}, true},
		{[]string{"SANDBOXD_API_AUTH_DISABLED=", "SANDBOXD_API_TOKENS=name=secret"}, true},
		{[]string{"SANDBOXD_API_AUTH_DISABLED=0", "SANDBOXD_API_TOKENS=name:secret"}, true},
		{[]string{"SANDBOXD_API_AUTH_DISABLED=no", "SANDBOXD_API_TOKENS=name:secret"}, true},
		{[]string{"SANDBOXD_API_AUTH_DISABLED=true", "SANDBOXD_API_TOKENS=name:secret"}, false},
		{[]string{"SANDBOXD_API_AUTH_DISABLED=1", "SANDBOXD_API_TOKENS=name:secret"}, false},
		{[]string{"SANDBOXD_API_AUTH_DISABLED=1", "CUBBY_AUTH_DISABLED=false", "CUBBY_TOKENS=name:secret"}, true},
		{[]string{"SANDBOXD_SOMETHING_ELSE=1"}, false},
	}
	for _, tt := range tests {
		c, err := config.Load(nil, tt.env)
		if err != nil {
			t.Errorf("%q: %v", tt.env, err)
			continue
		}
		if c.Authenticated() != tt.want {
			t.Errorf("%q: authenticated = %v, want %v", tt.env, c.Authenticated(), tt.want)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	c, err := config.Load([]string{"--tokens=alice:hunter2"}, []string{"CUBBY_DATABASE_URL=postgres://u:hunter2@h/d"})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", "config", c)
	for _, s := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), log.String()} {
		if strings.Contains(s, "hunter2") {
			t.Errorf("the secret is in %s", s)
		}
	}
}

func TestBytes(t *testing.T) {
	tests := []struct {
		in   string
		want config.Bytes
		out  string
	}{
		{"0", 0, "0"}, {"1024", 1024, "1KiB"}, {"10240", 10240, "10KiB"}, {"512MiB", 512 << 20, "512MiB"}, {"1.5GiB", 3 << 29, "1536MiB"},
		{"10GB", 10e9, "10GB"}, {"7 B", 7, "7"}, {"9223372036854775807", 1<<63 - 1, "9223372036854775807"},
	}
	for _, tt := range tests {
		got, err := config.ParseBytes(tt.in)
		if err != nil || got != tt.want {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", tt.in, got, err, tt.want)
		}
		if got.String() != tt.out {
			t.Errorf("%d.String() = %q, want %q", got, got.String(), tt.out)
		}
	}
	for _, in := range []string{"", "x", "-1", "1e30GiB", "NaN", "1XB", "9223372036854775808"} {
		if got, err := config.ParseBytes(in); !errors.Is(err, errs.Invalid) {
			t.Errorf("ParseBytes(%q) = %d, %v, want invalid", in, got, err)
		}
	}
}

// TestEveryKeyIsDocumented compares the struct with docs/configuration.md, both
// ways.
func TestEveryKeyIsDocumented(t *testing.T) {
	data, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, k := range append(config.Keys(), config.FileKey()) {
		def := k.Default
		if def != "" {
			def = "`" + def + "`"
		}
		want = append(want, fmt.Sprintf("| `%s` | `%s` | %s | %s |", k.Name, k.Env, def, k.Usage))
	}
	var got []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "| `") && strings.Contains(line, "| `CUBBY_") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("docs/configuration.md does not list the keys; its table must be:\n%s", strings.Join(want, "\n"))
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cubby.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
