package sandbox

import (
	"encoding/json"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/errs"
)

// The bounds of what a caller may ask for. They keep a request within what
// kernels, runtimes and the guest protocol can carry; what this host can give
// is for core to check.
const (
	MinMemoryBytes = 32 << 20 // a runtime and the agent
	MaxMemoryBytes = 64 << 40
	MinCPUs        = 0.01
	MaxCPUs        = 4096
	MinPIDs        = 32 // a container counts the threads of the agent too
	MaxPIDs        = 4 << 20
	MinDiskBytes   = 16 << 20 // a file system needs that much for itself
	MaxDiskBytes   = 1 << 50
	MinOpenFiles   = 64
	MaxOpenFiles   = 1 << 20

	MaxEnvEntries    = 1024
	MaxEnvBytes      = 256 << 10 // all names and values together
	MaxLabels        = 64
	MaxLabelKey      = 128
	MaxLabelValue    = 1024
	MaxMetadata      = 64
	MaxMetadataValue = 16 << 10
	MaxPorts         = 64
	MaxAllowHosts    = 256
	MaxExternal      = 256 // characters
	MaxImageName     = 255
	MaxName          = 63       // of a session, a terminal or a kernel
	MaxCode          = 4 << 20  // bytes of a cell
	MaxDetail        = 64 << 10 // bytes of what an operation was asked
	MaxUserName      = 64
	MaxThread        = 128 // bytes
	MaxDependencies  = 128
	MaxDependency    = 214 // bytes of a name
	MaxVersion       = 128 // bytes
	// MaxDuration bounds every timeout.
	MaxDuration = 366 * 24 * time.Hour

	// maxArgument is the kernel's MAX_ARG_STRLEN, less the final NUL.
	maxArgument  = 128<<10 - 1
	maxArguments = 1 << 20 // bytes of a whole command line
	maxPath      = 4095
)

func invalid(format string, args ...any) *errs.Error { return errs.E(errs.Invalid, format, args...) }

// Validate reports the first thing that is wrong with a complete spec, one
// whose open fields were filled with defaults. All its errors are
// errs.Invalid, name the field and say what is allowed.
func (s Spec) Validate() error {
	for _, check := range []func() error{
		func() error { return validateImage(s.Image) },
		func() error { return ValidateRuntime(s.Runtime) },
		func() error { return validateDependencies(s.Runtime, s.Dependencies) },
		func() error { return oneOf("isolation", s.Isolation, GVisor, Container) },
		s.Limits.Validate,
		func() error { return validateEnv(s.Env) },
		func() error { return validateUser(s.User) },
		func() error { return validatePairs("labels", s.Labels, MaxLabels, MaxLabelValue) },
		func() error { return validatePairs("metadata", s.Metadata, MaxMetadata, MaxMetadataValue) },
		func() error { return validatePorts(s.Ports) },
		func() error { return validateServices(s.Services) },
		s.Network.Validate,
		func() error { return oneOf("visibility", s.Visibility, Public, Private) },
		func() error { return oneOf("host_header", s.HostHeader, "", HostLocalhost, HostPreserve) },
		func() error {
			return oneOf("idle_policy", s.IdlePolicy, IdleStop, IdleDestroy, IdleSleep, IdleAlwaysOn)
		},
		func() error {
			if s.AutoWake == "" { // as in sandboxes of before there was a choice
				return nil
			}
			return oneOf("auto_wake", s.AutoWake, AutoWakeIdle, AutoWakeAlways, AutoWakeNever)
		},
		func() error { return validateDuration("exec_timeout", s.ExecTimeout) },
		func() error { return validateDuration("idle_timeout", s.IdleTimeout) },
		func() error { return validateDuration("max_lifetime", s.MaxLifetime) },
		func() error { return ValidateThread(s.Thread) },
		s.External.Validate,
		func() error { return validateRemote(s.GitRemoteURL) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Validate checks complete limits.
func (l Limits) Validate() error {
	for _, f := range []struct {
		name          string
		got, min, max int64
	}{
		{"memory_bytes", l.MemoryBytes, MinMemoryBytes, MaxMemoryBytes},
		{"pids", l.PIDs, MinPIDs, MaxPIDs},
		{"disk_bytes", l.DiskBytes, MinDiskBytes, MaxDiskBytes},
		{"open_files", l.OpenFiles, MinOpenFiles, MaxOpenFiles},
	} {
		if f.got < f.min || f.got > f.max {
			return invalid("limits.%s: %d is not between %d and %d", f.name, f.got, f.min, f.max)
		}
	}
	if math.IsNaN(l.CPUs) || l.CPUs < MinCPUs || l.CPUs > MaxCPUs {
		return invalid("limits.cpus: %v is not between %v and %v", l.CPUs, MinCPUs, MaxCPUs)
	}
	return nil
}

// Validate checks the mode and the shape of the host names; what a name leads
// to is decided when it is used.
func (p Policy) Validate() error {
	if err := oneOf("network.mode", p.Mode, NetworkNone, NetworkAllowlist, NetworkOpen); err != nil {
		return err
	}
	if len(p.Deny) > 0 && p.Mode == NetworkNone {
		return invalid("network.deny: mode %q reaches nothing anyway", NetworkNone)
	}
	if len(p.Allow) > 0 && p.Mode != NetworkAllowlist {
		return invalid("network.allow: a list of hosts needs mode %q", NetworkAllowlist)
	}
	for _, list := range []struct {
		field   string
		entries []string
	}{{"network.allow", p.Allow}, {"network.deny", p.Deny}} {
		if len(list.entries) > MaxAllowHosts {
			return invalid("%s: more than %d entries", list.field, MaxAllowHosts)
		}
		for _, h := range list.entries {
			if !plausibleHost(h) {
				return invalid("%s: %.80q is not a host", list.field, h).
					Hint("entries are host names, as pypi.org or example.com:8443, *.example.com, addresses and networks: no scheme and no path")
			}
		}
	}
	return nil
}

// plausibleHost refuses what can never match: the exact form is the egress
// policy's matter.
func plausibleHost(h string) bool {
	if address, _, ok := strings.Cut(h, "/"); ok { // a network, and no path
		if _, err := netip.ParseAddr(strings.TrimPrefix(address, "[")); err != nil {
			return false
		}
	}
	return h != "" && len(h) <= 260 && utf8.ValidString(h) && !strings.Contains(h, "//") &&
		!strings.ContainsAny(strings.TrimPrefix(h, "*."), "*\\?#@ \"'<>%") &&
		!strings.ContainsFunc(h, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) })
}

// Validate checks lengths and characters.
func (e External) Validate() error {
	for _, f := range []struct{ name, value string }{
		{"user_id", e.UserID}, {"project_id", e.ProjectID}, {"workspace_id", e.WorkspaceID},
	} {
		if utf8.RuneCountInString(f.value) > MaxExternal {
			return invalid("external.%s: longer than %d characters", f.name, MaxExternal)
		}
		if !printable(f.value) || strings.Contains(f.value, ",") {
			return invalid("external.%s: control characters and commas are not allowed", f.name)
		}
	}
	return nil
}

// Validate checks a command before it gets a number. Zero fields that have a
// default are valid.
func (e ExecSpec) Validate() error {
	if e.Cell != nil {
		if err := e.validateCell(); err != nil {
			return err
		}
		return e.validateCommand()
	}
	switch {
	case len(e.Argv) == 0 && e.Shell == "":
		return invalid("cmd: the command is empty").Hint("give an array of arguments, or a string for the shell")
	case len(e.Argv) > 0 && e.Shell != "":
		return invalid("cmd: both arguments and a shell string")
	case len(e.Argv) > 0 && e.Argv[0] == "":
		return invalid("cmd: the program's name is empty")
	}
	total := len(e.Shell)
	for _, a := range append([]string{e.Shell}, e.Argv...) {
		total += len(a) + 1
		if strings.ContainsRune(a, 0) {
			return invalid("cmd: an argument has a NUL byte")
		}
		if len(a) > maxArgument {
			return errs.E(errs.TooLarge, "cmd: an argument is longer than %d bytes", maxArgument).
				Hint("write it to a file in the sandbox first")
		}
	}
	if total > maxArguments {
		return errs.E(errs.TooLarge, "cmd: longer than %d bytes", maxArguments)
	}
	return e.validateCommand()
}

// validateCell checks code for a kernel.
func (e ExecSpec) validateCell() error {
	switch {
	case len(e.Argv) > 0 || e.Shell != "":
		return invalid("code: a cell is not a command as well")
	case e.Session != "" || e.Terminal != "" || e.PTY != nil:
		return invalid("code: a kernel runs in no session and no terminal")
	case len(e.Cell.Code) > MaxCode:
		return errs.E(errs.TooLarge, "code: longer than %d bytes", MaxCode).Hint("write it to a file in the sandbox and run that")
	case !utf8.ValidString(e.Cell.Code):
		return invalid("code: not UTF-8")
	}
	if err := ValidateName("kernel", e.Cell.Kernel); err != nil {
		return err
	}
	if e.Cell.Language != "" {
		return ValidateName("language", e.Cell.Language)
	}
	return nil
}

// Validate checks a kernel to make.
func (k KernelSpec) Validate() error {
	if k.Name != "" {
		if err := ValidateName("name", k.Name); err != nil {
			return err
		}
	}
	if err := ValidateName("language", k.Language); err != nil {
		return err
	}
	return ExecSpec{Cwd: k.Cwd, Env: k.Env, User: k.User}.validateCommand()
}

// validateCommand checks what commands and cells share.
func (e ExecSpec) validateCommand() error {
	if len(e.Cwd) > maxPath || strings.ContainsRune(e.Cwd, 0) {
		return invalid("cwd: not a path")
	}
	if err := validateEnv(e.Env); err != nil {
		return err
	}
	if e.User != "" {
		if err := validateUser(e.User); err != nil {
			return err
		}
	}
	if e.PTY != nil {
		if err := e.PTY.Validate(); err != nil {
			return err
		}
	}
	if e.Timeout != nil {
		if err := validateDuration("timeout", *e.Timeout); err != nil {
			return err
		}
	}
	return e.validateOperation()
}

// validateOperation checks what makes a command more than one.
func (e ExecSpec) validateOperation() error {
	if noun, act, ok := strings.Cut(e.Kind, "."); e.Kind != "" && (!ok || !lowerWord(noun) || !lowerWord(act)) {
		return invalid("kind: %.40q is not the name of an operation", e.Kind)
	}
	if e.Session != "" {
		if err := ValidateName("session", e.Session); err != nil {
			return err
		}
	}
	if e.Terminal != "" {
		if err := ValidateName("terminal", e.Terminal); err != nil {
			return err
		}
	}
	if e.Session != "" && e.Terminal != "" {
		return invalid("session: a terminal's program runs in no session")
	}
	if e.Detail != nil && (len(e.Detail) > MaxDetail || !json.Valid(e.Detail) || e.Detail[0] != '{') {
		return invalid("detail: not a JSON object of at most %d bytes", MaxDetail)
	}
	return validateEnv(e.Secrets)
}

// lowerWord reports whether s is of a-z and _, and of at most [MaxName] bytes.
func lowerWord(s string) bool {
	return s != "" && len(s) <= MaxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// ValidateName checks the name of a session, a terminal or a kernel: 1 to [MaxName]
// characters of A-Z a-z 0-9 . _ - of which the first is a letter or digit.
func ValidateName(field, name string) error {
	ok := name != "" && len(name) <= MaxName
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = alnum || i > 0 && (c == '.' || c == '_' || c == '-')
	}
	if !ok {
		return invalid("%s: not a name", field).
			Hint("a name has 1 to %d characters of A-Z a-z 0-9 . _ - and begins with a letter or digit", MaxName)
	}
	return nil
}

// Validate checks the size of a terminal.
func (w WindowSize) Validate() error {
	if w.Cols == 0 || w.Rows == 0 {
		return invalid("pty: cols and rows are at least 1")
	}
	return nil
}

func validateImage(name string) error {
	ok := name != "" && len(name) <= MaxImageName && !strings.Contains(name, "..") && !strings.Contains(name, "//")
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = alnum || i > 0 && i < len(name)-1 && strings.IndexByte("._-/:@+", c) >= 0
	}
	if !ok {
		return invalid("image: %.80q is not the name of an image", name).
			Hint("`cubby image ls` lists the images; a name is like base or registry.example.com/team/app:1.2")
	}
	return nil
}

func validateEnv(env map[string]string) error {
	if len(env) > MaxEnvEntries {
		return invalid("env: more than %d entries", MaxEnvEntries)
	}
	total := 0
	for name, value := range env {
		total += len(name) + len(value) + 2
		switch {
		case name == "":
			return invalid("env: a name is empty")
		case strings.ContainsAny(name, "=\x00\n") || !utf8.ValidString(name):
			return invalid("env: the name %.80q has a character that no name can have", name).
				Hint("names have no '=', NUL or newline")
		case strings.ContainsRune(value, 0) || !utf8.ValidString(value):
			return invalid("env: the value of %.80q has a NUL byte or is not UTF-8", name)
		case len(name)+len(value)+1 > maxArgument:
			return invalid("env: %.80q is longer than %d bytes", name, maxArgument)
		}
	}
	if total > MaxEnvBytes {
		return invalid("env: more than %d bytes", MaxEnvBytes)
	}
	return nil
}

func validateUser(user string) error {
	ok := user != "" && len(user) <= MaxUserName && user[0] != '-'
	for _, c := range []byte(user) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.-$", c) >= 0)
	}
	if !ok {
		return invalid("user: %.80q is not a user name", user).
			Hint("use %q, %q, a uid, or a user of the image", UserSandbox, UserRoot)
	}
	// No name has digits only. 2^32-1 means "nobody in particular" to kernels.
	digits := strings.Trim(user, "0123456789") == ""
	if n, err := strconv.ParseUint(user, 10, 32); digits && (err != nil || n == math.MaxUint32) {
		return invalid("user: %s is not a uid", user).Hint("the largest is %d", uint32(math.MaxUint32-1))
	}
	return nil
}

func validatePairs(field string, pairs map[string]string, entries, valueBytes int) error {
	if len(pairs) > entries {
		return invalid("%s: more than %d entries", field, entries)
	}
	for key, value := range pairs {
		if key == "" || len(key) > MaxLabelKey || !printable(key) || strings.Contains(key, "=") {
			return invalid("%s: the key %.80q is not allowed", field, key).
				Hint("a key has 1 to %d bytes, no '=' and no control characters", MaxLabelKey)
		}
		if len(value) > valueBytes {
			return invalid("%s: the value of %.80q is longer than %d bytes", field, key, valueBytes)
		}
		if !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return invalid("%s: the value of %.80q is not text", field, key)
		}
	}
	return nil
}

// ValidateRuntime checks the name of a runtime; "" is one.
func ValidateRuntime(runtime string) error {
	return oneOf("runtime", runtime, "", RuntimePython, RuntimeNode, RuntimeR)
}

// validateDependencies bounds what can be asked for. What names and versions
// look like is the runtime's matter: see package packages.
func validateDependencies(runtime string, list map[string]string) error {
	if len(list) == 0 {
		return nil
	}
	if runtime == "" {
		return invalid("dependencies: of no runtime").Hint("say which: python, node or r")
	}
	if len(list) > MaxDependencies {
		return invalid("dependencies: more than %d", MaxDependencies)
	}
	for name, version := range list {
		if name == "" || len(name) > MaxDependency || len(version) > MaxVersion || !printable(name) || !printable(version) {
			return invalid("dependencies: %.80q with the version %.80q is not a package", name, version).
				Hint("a name has 1 to %d bytes, a version at most %d", MaxDependency, MaxVersion)
		}
	}
	return nil
}

// ValidateThread checks the name of a thread; "" is none.
func ValidateThread(thread string) error {
	if len(thread) > MaxThread || !printable(thread) {
		return invalid("thread: %.80q is not allowed", thread).
			Hint("a thread has at most %d bytes and no control characters", MaxThread)
	}
	return nil
}

func validatePorts(ports []int) error {
	if len(ports) > MaxPorts {
		return invalid("ports: more than %d", MaxPorts)
	}
	for i, p := range ports {
		if err := ValidatePort(p); err != nil {
			return err
		}
		if slices.Contains(ports[:i], p) {
			return invalid("ports: %d is there twice", p)
		}
	}
	return nil
}

// ValidatePort checks a TCP port number.
func ValidatePort(port int) error {
	if port < 1 || port > 65535 {
		return invalid("port %d is not between 1 and 65535", port)
	}
	return nil
}

func validateDuration(field string, d time.Duration) error {
	if d < 0 || d > MaxDuration {
		return invalid("%s: not between 0 and %d seconds", field, int64(MaxDuration.Seconds()))
	}
	return nil
}

func oneOf[T ~string](field string, got T, allowed ...T) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	names := make([]string, 0, len(allowed))
	for _, a := range allowed {
		if a != "" {
			names = append(names, string(a))
		}
	}
	return invalid("%s: %.80q is none of %s", field, string(got), strings.Join(names, ", "))
}

// printable reports valid UTF-8 without control characters.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
