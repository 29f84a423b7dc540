package sandbox_test

import (
	"bytes"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func validSpec() sandbox.Spec {
	return sandbox.Spec{
		Image: "base", Isolation: sandbox.GVisor, User: sandbox.UserSandbox,
		Limits:     sandbox.Limits{MemoryBytes: 1 << 30, CPUs: 2, PIDs: 512, DiskBytes: 4 << 30, OpenFiles: 4096},
		Network:    sandbox.Policy{Mode: sandbox.NetworkAllowlist},
		Visibility: sandbox.Private, IdlePolicy: sandbox.IdleStop,
		ExecTimeout: 5 * time.Minute, IdleTimeout: 30 * time.Minute,
	}
}

func TestSpecValidate(t *testing.T) {
	tests := []struct {
		name string
		edit func(*sandbox.Spec)
		ok   bool
	}{
		{"the defaults", func(*sandbox.Spec) {}, true},
		{"image from a registry", func(s *sandbox.Spec) { s.Image = "registry.example.com:5000/team/App:1.2" }, true},
		{"image by digest", func(s *sandbox.Spec) { s.Image = strings.Repeat("ab", 32) }, true},
		{"no image", func(s *sandbox.Spec) { s.Image = "" }, false},
		{"image that climbs", func(s *sandbox.Spec) { s.Image = "a/../../etc" }, false},
		{"absolute image", func(s *sandbox.Spec) { s.Image = "/etc" }, false},
		{"image with a NUL", func(s *sandbox.Spec) { s.Image = "a\x00b" }, false},
		{"for Python", func(s *sandbox.Spec) { s.Runtime = "python" }, true},
		{"unknown runtime", func(s *sandbox.Spec) { s.Runtime = "cobol" }, false},
		{"dependencies", func(s *sandbox.Spec) { s.Runtime, s.Dependencies = "r", map[string]string{"a": "", "b": "1.0"} }, true},
		{"dependencies of nothing", func(s *sandbox.Spec) { s.Dependencies = map[string]string{"a": ""} }, false},
		{"dependency without a name", func(s *sandbox.Spec) { s.Runtime, s.Dependencies = "r", map[string]string{"": "1"} }, false},
		{"long version", func(s *sandbox.Spec) {
			s.Runtime, s.Dependencies = "node", map[string]string{"a": strings.Repeat("1", 129)}
		}, false},
		{"unknown isolation", func(s *sandbox.Spec) { s.Isolation = "vm" }, false},
		{"no memory", func(s *sandbox.Spec) { s.Limits.MemoryBytes = 0 }, false},
		{"negative memory", func(s *sandbox.Spec) { s.Limits.MemoryBytes = -1 }, false},
		{"all memory of the world", func(s *sandbox.Spec) { s.Limits.MemoryBytes = math.MaxInt64 }, false},
		{"cpus NaN", func(s *sandbox.Spec) { s.Limits.CPUs = math.NaN() }, false},
		{"cpus infinite", func(s *sandbox.Spec) { s.Limits.CPUs = math.Inf(1) }, false},
		{"half a cpu", func(s *sandbox.Spec) { s.Limits.CPUs = .5 }, true},
		{"one process", func(s *sandbox.Spec) { s.Limits.PIDs = 1 }, false},
		{"too few processes for a container", func(s *sandbox.Spec) { s.Limits.PIDs = 31 }, false},
		{"fewest processes", func(s *sandbox.Spec) { s.Limits.PIDs = 32 }, true},
		{"too little memory for a runtime", func(s *sandbox.Spec) { s.Limits.MemoryBytes = 32<<20 - 1 }, false},
		{"least memory", func(s *sandbox.Spec) { s.Limits.MemoryBytes = 32 << 20 }, true},
		{"tiny disk", func(s *sandbox.Spec) { s.Limits.DiskBytes = 4096 }, false},
		{"wakes always", func(s *sandbox.Spec) { s.AutoWake = sandbox.AutoWakeAlways }, true},
		{"wakes never", func(s *sandbox.Spec) { s.AutoWake = sandbox.AutoWakeNever }, true},
		{"wakes sometimes", func(s *sandbox.Spec) { s.AutoWake = "sometimes" }, false},
		{"no files", func(s *sandbox.Spec) { s.Limits.OpenFiles = 3 }, false},
		{"env", func(s *sandbox.Spec) { s.Env = map[string]string{"A": "line\nline", "b c": "="} }, true},
		{"env name with =", func(s *sandbox.Spec) { s.Env = map[string]string{"A=B": "1"} }, false},
		{"env name with NUL", func(s *sandbox.Spec) { s.Env = map[string]string{"A\x00": "1"} }, false},
		{"env name with newline", func(s *sandbox.Spec) { s.Env = map[string]string{"A\n": "1"} }, false},
		{"env without a name", func(s *sandbox.Spec) { s.Env = map[string]string{"": "1"} }, false},
		{"env value with NUL", func(s *sandbox.Spec) { s.Env = map[string]string{"A": "\x00"} }, false},
		{"huge env", func(s *sandbox.Spec) {
			s.Env = map[string]string{}
			for _, c := range "abc" {
				s.Env[string(c)] = strings.Repeat("x", 100<<10)
			}
		}, false},
		{"root", func(s *sandbox.Spec) { s.User = "root" }, true},
		{"uid", func(s *sandbox.Spec) { s.User = "1001" }, true},
		{"largest uid", func(s *sandbox.Spec) { s.User = "4294967294" }, true},
		{"uid of nobody in particular", func(s *sandbox.Spec) { s.User = "4294967295" }, false},
		{"uid of 65 bits", func(s *sandbox.Spec) { s.User = "36893488147419103232" }, false},
		{"user like an option", func(s *sandbox.Spec) { s.User = "-x" }, false},
		{"user with a colon", func(s *sandbox.Spec) { s.User = "a:b" }, false},
		{"labels", func(s *sandbox.Spec) { s.Labels = map[string]string{"team/x": "ü"} }, true},
		{"label key with =", func(s *sandbox.Spec) { s.Labels = map[string]string{"a=b": ""} }, false},
		{"label without a key", func(s *sandbox.Spec) { s.Labels = map[string]string{"": ""} }, false},
		{"long label", func(s *sandbox.Spec) { s.Labels = map[string]string{"a": strings.Repeat("x", 2000)} }, false},
		{"ports", func(s *sandbox.Spec) { s.Ports = []int{1, 65535} }, true},
		{"port 0", func(s *sandbox.Spec) { s.Ports = []int{0} }, false},
		{"port 65536", func(s *sandbox.Spec) { s.Ports = []int{65536} }, false},
		{"port twice", func(s *sandbox.Spec) { s.Ports = []int{80, 80} }, false},
		{"unknown network", func(s *sandbox.Spec) { s.Network.Mode = "lan" }, false},
		{"allow", func(s *sandbox.Spec) { s.Network.Allow = []string{"a.example", "b.example:8080"} }, true},
		{"allow a URL", func(s *sandbox.Spec) { s.Network.Allow = []string{"https://a.example/"} }, false},
		{"allow everything", func(s *sandbox.Spec) { s.Network.Allow = []string{"*"} }, false},
		{"allow without allowlist", func(s *sandbox.Spec) {
			s.Network = sandbox.Policy{Mode: sandbox.NetworkOpen, Allow: []string{"a.example"}}
		}, false},
		{"unknown visibility", func(s *sandbox.Spec) { s.Visibility = "secret" }, false},
		{"unknown idle policy", func(s *sandbox.Spec) { s.IdlePolicy = "nap" }, false},
		{"negative timeout", func(s *sandbox.Spec) { s.ExecTimeout = -1 }, false},
		{"timeout of a thousand years", func(s *sandbox.Spec) { s.IdleTimeout = math.MaxInt64 }, false},
		{"external", func(s *sandbox.Spec) { s.External.UserID = strings.Repeat("ü", 256) }, true},
		{"external too long", func(s *sandbox.Spec) { s.External.ProjectID = strings.Repeat("x", 257) }, false},
		{"external with a comma", func(s *sandbox.Spec) { s.External.WorkspaceID = "a,b" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := validSpec()
			tt.edit(&s)
			err := s.Validate()
			if tt.ok && err != nil {
				t.Errorf("Validate = %v, want nil", err)
			}
			if !tt.ok && !errors.Is(err, errs.Invalid) {
				t.Errorf("Validate = %v, want invalid", err)
			}
		})
	}
}

func TestExecSpecValidate(t *testing.T) {
	negative, hour := -time.Second, time.Hour
	tests := []struct {
		name string
		spec sandbox.ExecSpec
		want error
	}{
		{"argv", sandbox.ExecSpec{Argv: []string{"echo", ""}}, nil},
		{"shell", sandbox.ExecSpec{Shell: "echo hi"}, nil},
		{"nothing", sandbox.ExecSpec{}, errs.Invalid},
		{"both", sandbox.ExecSpec{Argv: []string{"a"}, Shell: "b"}, errs.Invalid},
		{"empty program", sandbox.ExecSpec{Argv: []string{""}}, errs.Invalid},
		{"NUL", sandbox.ExecSpec{Argv: []string{"a", "b\x00c"}}, errs.Invalid},
		{"NUL in the shell", sandbox.ExecSpec{Shell: "a\x00"}, errs.Invalid},
		{"long argument", sandbox.ExecSpec{Shell: strings.Repeat("x", 200<<10)}, errs.TooLarge},
		{"NUL in cwd", sandbox.ExecSpec{Shell: "a", Cwd: "/a\x00"}, errs.Invalid},
		{"env", sandbox.ExecSpec{Shell: "a", Env: map[string]string{"A=": ""}}, errs.Invalid},
		{"user", sandbox.ExecSpec{Shell: "a", User: "a b"}, errs.Invalid},
		{"uid", sandbox.ExecSpec{Shell: "a", User: "4294967295"}, errs.Invalid},
		{"no columns", sandbox.ExecSpec{Shell: "a", PTY: &sandbox.WindowSize{Rows: 1}}, errs.Invalid},
		{"timeout", sandbox.ExecSpec{Shell: "a", Timeout: &hour}, nil},
		{"negative timeout", sandbox.ExecSpec{Shell: "a", Timeout: &negative}, errs.Invalid},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := tt.spec.Validate(); !errors.Is(err, tt.want) {
				t.Errorf("Validate = %v, want %v", err, tt.want)
			}
		})
	}
}

func FuzzSpecValidate(f *testing.F) {
	f.Add([]byte("base"), []byte("NAME"), []byte("value"), "sandbox", 2.0, int64(1<<30), 80, "pypi.org", "user-1")
	f.Add([]byte("a/../b"), []byte("A=B"), []byte("\x00"), "-r", math.Inf(1), int64(-1), 0, "*", "a,b")
	f.Fuzz(func(t *testing.T, image, name, value []byte, user string, cpus float64, memory int64, port int, host, owner string) {
		s := validSpec()
		s.Image, s.User, s.Ports = string(image), user, []int{port}
		s.Env = map[string]string{string(name): string(value)}
		s.Limits.CPUs, s.Limits.MemoryBytes = cpus, memory
		s.Network.Allow, s.External.UserID = []string{host}, owner
		err := s.Validate()
		if err != nil {
			if !errors.Is(err, errs.Invalid) {
				t.Fatalf("Validate = %v, want invalid", err)
			}
			return
		}
		switch {
		case len(name) == 0 || bytes.ContainsAny(name, "=\x00\n"):
			t.Errorf("env name %q passed", name)
		case bytes.IndexByte(value, 0) >= 0:
			t.Errorf("env value %q passed", value)
		case bytes.Contains(image, []byte("..")) || image[0] == '/' || bytes.IndexByte(image, 0) >= 0:
			t.Errorf("image %q passed", image)
		case port < 1 || port > 65535:
			t.Errorf("port %d passed", port)
		case memory <= 0 || cpus <= 0 || cpus != cpus:
			t.Errorf("limits %d, %v passed", memory, cpus)
		case strings.ContainsAny(owner, ",\n\x00"):
			t.Errorf("owner %q passed", owner)
		case user == "" || strings.ContainsAny(user, ":/\x00 \n"):
			t.Errorf("user %q passed", user)
		case strings.ContainsAny(host, " \n\x00") || strings.Contains(strings.TrimPrefix(host, "*."), "*"):
			t.Errorf("host %q passed", host)
		case strings.Contains(host, "/"):
			address, _, _ := strings.Cut(host, "/")
			if net.ParseIP(strings.TrimPrefix(address, "[")) == nil {
				t.Errorf("path %q passed", host)
			}
		}
	})
}
