package config

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// fileKey names the configuration file itself, so it cannot stand in one.
const fileKey = "config"

// poolKey may be tables in the file.
const poolKey = "pool"

// foreign are CUBBY_* variables that are not keys of the daemon: the client's,
// which share the environment of a machine that runs both.
var foreign = map[string]bool{"CUBBY_URL": true, "CUBBY_TOKEN": true}

// testPrefix marks variables of cubby's own tests.
const testPrefix = "CUBBY_TEST_"

// Key describes one key for help, completion and docs.
type Key struct {
	Name    string // flag and file key: "data-dir"
	Env     string // "CUBBY_DATA_DIR"
	Default string // as it would be written; "" is unset
	Usage   string
	Bool    bool // the flag needs no value
	index   int
}

// Keys lists every key of [Config] in its order.
func Keys() []Key {
	t := reflect.TypeFor[Config]()
	keys := make([]Key, 0, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("key")
		keys = append(keys, Key{
			Name: name, Env: envName(name), Default: f.Tag.Get("default"), Usage: f.Tag.Get("usage"),
			Bool: f.Type.Kind() == reflect.Bool, index: i,
		})
	}
	return keys
}

// FileKey describes --config, which is not a key of the file.
func FileKey() Key {
	return Key{Name: fileKey, Env: envName(fileKey), Usage: "TOML file with the same keys"}
}

func envName(key string) string { return "CUBBY_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_")) }

// Default returns the configuration without flags, environment and file.
func Default() Config {
	c, err := Load(nil, nil)
	if err != nil {
		panic("config: the defaults are not valid: " + err.Error())
	}
	return c
}

// Load reads the configuration: flags (args, without the program's name) win
// over the environment (in the form of os.Environ), that over the file named
// by --config or CUBBY_CONFIG, and that over the defaults. The result is
// valid. A call for help is flag.ErrHelp; every other error is errs.Invalid
// and names the key.
func Load(args, environ []string) (Config, error) {
	flags, err := parseFlags(args)
	if err != nil {
		return Config{}, err
	}
	env, err := parseEnv(environ)
	if err != nil {
		return Config{}, err
	}
	file := map[string]string{}
	path, ok := flags[fileKey]
	if !ok {
		path, ok = env[fileKey]
	}
	if ok {
		if file, err = parseFile(path); err != nil {
			return Config{}, err
		}
	}

	var c Config
	v := reflect.ValueOf(&c).Elem()
	for _, k := range Keys() {
		text, from := k.Default, "default"
		for _, source := range []struct {
			name   string
			values map[string]string
		}{{"--" + k.Name, flags}, {k.Env, env}, {path, file}} {
			if s, ok := source.values[k.Name]; ok {
				text, from = s, source.name
				break
			}
		}
		if err := set(v.Field(k.index), text); err != nil {
			return Config{}, errs.E(errs.Invalid, "%s (from %s): %s", k.Name, from, errs.Public(err).Message).Hint("%s", errs.Public(err).Hint)
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func parseFlags(args []string) (map[string]string, error) {
	values := map[string]string{}
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, k := range append(Keys(), FileKey()) {
		record := func(s string) error { values[k.Name] = s; return nil }
		if k.Bool {
			fs.BoolFunc(k.Name, k.Usage, record)
		} else {
			fs.Func(k.Name, k.Usage, record)
		}
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, flag.ErrHelp
		}
		return nil, errs.E(errs.Invalid, "%s", err.Error())
	}
	if fs.NArg() > 0 {
		return nil, errs.E(errs.Invalid, "unexpected argument %q", fs.Arg(0))
	}
	return values, nil
}

// parseEnv returns the values by key. An empty variable is an unset one.
func parseEnv(environ []string) (map[string]string, error) {
	keys := map[string]string{}
	for _, k := range append(Keys(), FileKey()) {
		keys[k.Env] = k.Name
	}
	values := map[string]string{}
	var unknown []string
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch key, ok := keys[name]; {
		case ok && value != "":
			values[key] = value
		case ok, foreign[name], strings.HasPrefix(name, testPrefix):
		case strings.HasPrefix(name, "CUBBY_"):
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		sort.Strings(unknown)
		return nil, errs.E(errs.Invalid, "unknown environment variable %s", strings.Join(unknown, ", ")).
			Hint("the variables are listed in docs/configuration.md")
	}
	return values, referenceEnv(environ, values)
}

// parseFile returns the file's values as text, so that one parser per type
// serves every source.
func parseFile(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.E(errs.Invalid, "configuration file: %v", err)
	}
	var raw map[string]any
	if err := toml.Unmarshal(data, &raw); err != nil {
		return nil, errs.E(errs.Invalid, "%s: %v", path, err)
	}
	known := map[string]bool{}
	for _, k := range Keys() {
		known[k.Name] = true
	}
	values := map[string]string{}
	for key, v := range raw {
		if !known[key] {
			return nil, errs.E(errs.Invalid, "%s: unknown key %q", path, key).Hint("the keys are listed in docs/configuration.md")
		}
		switch v := v.(type) {
		case string, bool, int64, float64:
			values[key] = fmt.Sprint(v)
		case []any:
			items := make([]string, len(v))
			for i, item := range v {
				s, ok := item.(string)
				if !ok || strings.Contains(s, ",") {
					return nil, errs.E(errs.Invalid, "%s: %s must be a list of strings without commas", path, key)
				}
				items[i] = s
			}
			values[key] = strings.Join(items, ",")
		case []map[string]any:
			if key != poolKey {
				return nil, errs.E(errs.Invalid, "%s: %s has a value of the wrong type", path, key)
			}
			text, err := poolsText(v)
			if err != nil {
				return nil, errs.E(errs.Invalid, "%s: %s", path, errs.Public(err).Message)
			}
			values[key] = text
		default:
			return nil, errs.E(errs.Invalid, "%s: %s has a value of the wrong type", path, key)
		}
	}
	return values, nil
}

// set parses text into one field of Config. A type that is not listed is a
// mistake of this package, which the tests find.
func set(f reflect.Value, text string) error {
	switch p := f.Addr().Interface().(type) {
	case *string:
		*p = text
	case *OnShutdown:
		*p = OnShutdown(text)
	case *sandbox.IdlePolicy:
		*p = sandbox.IdlePolicy(text)
	case *Secret:
		*p = Secret(text)
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return errs.E(errs.Invalid, "%q is neither true nor false", text)
		}
		*p = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return errs.E(errs.Invalid, "%q is not a whole number", text)
		}
		*p = n
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return errs.E(errs.Invalid, "%q is not a number", text)
		}
		*p = n
	case *Bytes:
		n, err := ParseBytes(text)
		if err != nil {
			return err
		}
		*p = n
	case *Share:
		s, err := ParseShare(text)
		if err != nil {
			return err
		}
		*p = s
	case *Limits:
		l, err := ParseLimits(text)
		if err != nil {
			return err
		}
		*p = l
	case *Pools:
		pools, err := ParsePools(text)
		if err != nil {
			return err
		}
		*p = pools
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return errs.E(errs.Invalid, "%q is not a duration", text).Hint("write 90s, 15m or 168h")
		}
		*p = d
	case *slog.Level:
		switch text {
		case "debug", "info", "warn", "error":
			return p.UnmarshalText([]byte(text))
		}
		return errs.E(errs.Invalid, "%q is not a level", text).Hint("write debug, info, warn or error")
	case *[]string:
		for _, item := range strings.Split(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				*p = append(*p, item)
			}
		}
	default:
		panic("config: no parser for " + f.Type().String())
	}
	return nil
}
