// Package config turns flags, CUBBY_* environment variables and an optional
// TOML file into one [Config]. It refuses what it does not know: an unknown
// key, an unknown CUBBY_* variable or a value that does not parse is a start-up
// error, never replaced by a default.
package config

import (
	"log/slog"
	"path/filepath"
	"time"
)

// Config is everything that an operator can set. Its field tags are the one
// list of keys: flag --key, variable CUBBY_KEY, file key. The zero value is
// not usable; [Load] and [Default] give complete ones.
type Config struct {
	Listen  string `key:"listen" default:"127.0.0.1:9090" usage:"address to serve the API on"`
	DataDir string `key:"data-dir" default:"/var/lib/cubby" usage:"directory for everything that cubby keeps"`
	// ImageDir is DataDir/images when it is not set.
	ImageDir string `key:"image-dir" default:"" usage:"directory of sandbox images (default DATA-DIR/images)"`

	Tokens       Tokens `key:"tokens" default:"" usage:"API tokens: name:secret[,name2:secret2]" secret:"true"`
	AuthDisabled bool   `key:"auth-disabled" default:"false" usage:"ignore the tokens; allowed on loopback addresses only"`
	TLSCert      string `key:"tls-cert" default:"" usage:"certificate file (PEM); with --tls-key the API is served over TLS"`
	TLSKey       string `key:"tls-key" default:"" usage:"key file (PEM) of --tls-cert"`

	EgressAllow  []string `key:"egress-allow" default:"" usage:"hosts that every sandbox may reach, host[:port],…; may name private addresses"`
	MaxSandboxes int      `key:"max-sandboxes" default:"1000" usage:"sandboxes that may exist at once"`

	DiskReserve      Bytes         `key:"disk-reserve" default:"0" usage:"free space of the host's disk that sandboxes never use (0: 5% of it, at least 1GiB)"`
	DiskPool         int           `key:"disk-pool" default:"4" usage:"formatted sandbox disks kept ready"`
	DiskOvercommit   float64       `key:"disk-overcommit" default:"0" usage:"bound of promised over real disk space (0: none)"`
	MinFreeMemory    Bytes         `key:"min-free-memory" default:"256MiB" usage:"creates are refused when the host has less available memory"`
	HistoryRetention time.Duration `key:"history-retention" default:"168h" usage:"how long events and output of destroyed sandboxes are kept"`
	ShutdownTimeout  time.Duration `key:"shutdown-timeout" default:"15s" usage:"how long open requests may go on when the daemon stops"`
	RequestBodyLimit Bytes         `key:"request-body-limit" default:"1MiB" usage:"largest JSON request body"`

	LogLevel  slog.Level `key:"log-level" default:"info" usage:"debug, info, warn or error"`
	LogFormat string     `key:"log-format" default:"text" usage:"text or json"`
}

// Tokens is the unparsed token list; it never prints its secrets.
type Tokens string

func (t Tokens) String() string {
	if t == "" {
		return ""
	}
	return "[redacted]"
}

// GoString keeps the secrets out of %#v.
func (t Tokens) GoString() string { return t.String() }

// Bytes is a size. It is written with or without a unit: 1073741824, 512MiB,
// 10GB.
type Bytes int64

// Key describes one configuration key for help, completion and docs.
type Key struct {
	Name, Env, Default, Usage string
}

// Images returns the image directory.
func (c Config) Images() string {
	if c.ImageDir != "" {
		return c.ImageDir
	}
	return filepath.Join(c.DataDir, "images")
}
