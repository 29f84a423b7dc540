// Package config turns flags, CUBBY_* environment variables and an optional
// TOML file into one [Config]. It refuses what it does not know: an unknown
// key, an unknown CUBBY_* variable or a value that does not parse is a start-up
// error, never replaced by a default.
package config

import (
	"errors"
	"log/slog"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Config is everything that an operator can set. The field tags are the one
// list of keys: flag --key, variable CUBBY_KEY, key in the file. [Load] and
// [Default] give complete ones; the defaults are the safe choice.
type Config struct {
	Listen     string `key:"listen" default:"127.0.0.1:9090" usage:"address to serve the API on; beyond loopback it needs tokens"`
	GRPCListen string `key:"grpc-listen" usage:"a second address to serve the API on, where clients of agentbox look for it: 127.0.0.1:50051; empty: none"`
	DataDir    string `key:"data-dir" default:"/var/lib/cubby" usage:"directory for everything that cubby keeps"`
	// ImageDir is empty unless it was set; read it through [Config.Images].
	ImageDir string `key:"image-dir" usage:"directory of sandbox images; empty: images below the data directory"`
	// ImageLooks is for hosts on which daemons start often.
	ImageLooks time.Duration `key:"image-looks" default:"0" usage:"how long it counts that a daemon has looked at the size and times of every file of an image: one that starts within that time, and before the host boots, does not look again; 0: each daemon looks itself"`
	// DatabaseURL holds a password.
	DatabaseURL Secret `key:"database-url" usage:"PostgreSQL database to keep the state in, as postgres://user:password@host/name; empty: SQLite in the data directory"`

	Tokens       Secret `key:"tokens" usage:"API tokens as name:secret[,name2@tenant:secret2]; none: no authentication, loopback only"`
	AuthDisabled bool   `key:"auth-disabled" default:"false" usage:"serve without authentication although tokens are set; loopback only"`
	TLSCert      string `key:"tls-cert" usage:"certificate file (PEM); together with tls-key the API is served over TLS"`
	TLSKey       string `key:"tls-key" usage:"private key file (PEM) of tls-cert"`

	// PreviewListen is empty unless it was set; read it through [Config.Previews].
	PreviewListen  string `key:"preview-listen" usage:"address to show the ports of sandboxes on; off: none; empty: 127.0.0.1:9091, or none when another program has that port"`
	PreviewDomain  string `key:"preview-domain" default:"preview.localhost" usage:"domain below which each port has a host name, as s-ID-PORT.preview.localhost; its names must all lead to preview-listen"`
	PreviewURL     string `key:"preview-url" usage:"how visitors reach preview-listen where a proxy stands in front, as https://preview-domain[:port]; empty: directly"`
	PreviewTLSCert string `key:"preview-tls-cert" usage:"certificate file (PEM) for *.preview-domain; together with preview-tls-key previews are served over TLS"`
	PreviewTLSKey  string `key:"preview-tls-key" usage:"private key file (PEM) of preview-tls-cert"`

	PreviewKeys     Secret `key:"preview-token-keys" usage:"keys of the tokens that /preview-auth takes, as kid=secret[,kid2=secret2], each of 16 to 512 characters; empty: it takes none"`
	AuthRedirectURL string `key:"auth-redirect-url" usage:"where /preview-auth and /forward-auth send visitors who may not see a preview; {sandbox_id} and {return} are replaced; empty: they answer 401"`
	ForwardAuthDeny string `key:"forward-auth-deny-mode" default:"redirect" usage:"how /forward-auth does that: redirect (302), or meta-refresh (401 with a page)"`

	CORSOrigins []string `key:"cors-origins" usage:"origins whose web pages may use the API, as https://host[:port],…; * with tokens: all; empty: none but the daemon's own"`

	EgressAllow []string `key:"egress-allow" usage:"hosts that every sandbox with network may reach, as host[:port],…; may name private addresses"`
	EgressProxy string   `key:"egress-proxy" usage:"proxy of its own (cubby egress-proxy) that makes sandboxes' connections, as http://host:port; empty: the daemon makes them"`
	EgressKey   Secret   `key:"egress-signing-key" usage:"key of the tokens for egress-proxy, at least 16 characters; or several as id:key,id2:key2, of which the first signs"`
	EgressDeny  []string `key:"egress-deny" usage:"hosts that no sandbox may reach, as host[:port],…; comes before everything that allows"`

	PipIndexURL     string        `key:"pip-index-url" usage:"index that pip installs from, as https://host/simple, for every sandbox; allows its host; empty: pypi.org"`
	NPMRegistry     string        `key:"npm-registry" usage:"registry that npm installs from, as https://host, for every sandbox; allows its host; empty: registry.npmjs.org"`
	CRANMirror      string        `key:"cran-mirror" usage:"mirror that R's packages come from, as https://host, for every sandbox; allows its host; empty: cloud.r-project.org, which nothing allows by itself"`
	PackagesTimeout time.Duration `key:"packages-timeout" default:"10m" usage:"how long an installation of packages may take, at create and later"`

	IdleTimeout time.Duration      `key:"idle-timeout" default:"30m" usage:"how long a sandbox that names no other time may be unused; 0: for ever"`
	IdlePolicy  sandbox.IdlePolicy `key:"idle-policy" default:"sleep" usage:"what happens then to one that names no other policy: stop, destroy, sleep or always_on"`
	MaxLifetime time.Duration      `key:"max-lifetime" default:"0" usage:"after that long a sandbox that names no other time is destroyed; 0: never"`
	ThreadIdle  time.Duration      `key:"thread-idle-timeout" default:"30m" usage:"idle-timeout of sandboxes in a thread, which are destroyed then if they name no other policy"`
	ThreadLife  time.Duration      `key:"thread-max-lifetime" default:"2h" usage:"max-lifetime of sandboxes in a thread, and how long uploads of a thread without sandboxes are kept"`
	OnShutdown  OnShutdown         `key:"on-shutdown" default:"keep" usage:"what becomes of the sandboxes when the daemon stops in good order: keep (they go on) or destroy"`

	MaxSandboxes   int     `key:"max-sandboxes" default:"1000" usage:"sandboxes that may run at once"`
	MaxPerTenant   int     `key:"max-per-tenant" default:"0" usage:"sandboxes of one tenant that may run at once; 0: no bound"`
	MaxOfTenant    int     `key:"max-sandboxes-per-tenant" default:"1000" usage:"sandboxes that a tenant may have, stopped ones and disks kept for an id included; 0: no bound"`
	DiskOfTenant   Bytes   `key:"max-disk-per-tenant" default:"0" usage:"size that the disks of a tenant's sandboxes, stopped ones and kept disks included, may have together; 0: no bound"`
	MaxSnapshots   int     `key:"max-snapshots-per-tenant" default:"100" usage:"snapshots that a tenant may have; 0: no bound"`
	SnapshotBytes  Bytes   `key:"max-snapshot-bytes-per-tenant" default:"50GiB" usage:"what the snapshots of a tenant may take of the host together; 0: no bound"`
	MaxCommands    int     `key:"max-commands-per-tenant" default:"2048" usage:"commands, cells and terminals of one tenant that may run at once; 0: no bound"`
	MaxPerThread   int     `key:"max-per-thread" default:"3" usage:"sandboxes of one thread that may run at once; 0: no bound"`
	MaxInThreads   int     `key:"max-thread-sandboxes" default:"5" usage:"sandboxes of one tenant's threads together that may run at once; those in no thread do not count; 0: no bound"`
	MaxThreads     int     `key:"max-active-threads" default:"10" usage:"threads of one tenant that may have sandboxes; one more destroys the longest unused; 0: no bound"`
	MemoryReserve  Share   `key:"memory-reserve" default:"10%" usage:"memory of the host that stays available, in bytes or as a percentage: with less of it idle sandboxes are put to sleep, and creates, starts and wakes are refused; 0: none"`
	MinFreeMemory  Bytes   `key:"min-free-memory" default:"0" usage:"memory-reserve in bytes, as it was called before; 0: memory-reserve holds"`
	SleepDisk      Share   `key:"sleep-disk" default:"20%" usage:"space of the host's disk that the memories of sleeping sandboxes may take, in bytes or as a percentage: beyond it the oldest is given up, and its sandbox is stopped; 0: no bound"`
	FavorMoves     bool    `key:"cgroup-favordynmods" default:"true" usage:"mount option of the host's cgroups that makes moves of processes between them 25 times as quick, for all of its programs; from Linux 6.18 on it stays until the host boots; false: the host stays as it is"`
	DiskReserve    Bytes   `key:"disk-reserve" default:"0" usage:"free space of the host's disk that sandboxes never use; 0: 5% of the disk, at least 1GiB"`
	DiskOvercommit float64 `key:"disk-overcommit" default:"0" usage:"how much disk may be promised, as a multiple of the real one; 0: no bound"`
	TenantDisk     Bytes   `key:"tenant-disk" default:"10GiB" usage:"size of the disk that the sandboxes of a tenant share; disks that exist keep theirs"`
	DiskPool       int     `key:"disk-pool" default:"4" usage:"formatted sandbox disks that are kept ready"`

	SentryPool int `key:"sentry-pool" default:"1" usage:"kernels of gVisor (sentries), 17 MiB each, that are kept started for the next sandbox that begins or wakes; all are of the image, limits and volumes that are asked for; needs cgroup-favordynmods; 0: none"`

	ContainerPool int `key:"container-pool" default:"1" usage:"containers, 5 MiB each, that are kept ready for the next create; all are of the image, limits and user that were asked for last; 0, or with disk-overcommit: none"`

	Pool Pools `key:"pool" default:"auto" usage:"sandboxes that are kept ready for creates that fit, as count=2,image=base,isolation=gvisor,kernel=python,modules=numpy+pandas,memory=1GiB,cpus=2,pids=512,disk=4GiB,user=sandbox;…, or as [[pool]] in the file; auto: two of base with gVisor, the default limits and a Python kernel, where the host has 4GiB; off: none"`

	ArchiveURL       string `key:"archive-url" usage:"where the files of destroyed sandboxes can be archived, as s3://bucket[/prefix]; empty: nowhere"`
	ArchiveEndpoint  string `key:"archive-endpoint" usage:"S3-compatible storage of archive-url, as https://host[:port]; empty: AWS"`
	ArchiveRegion    string `key:"archive-region" usage:"region of the bucket; empty: the storage is asked"`
	ArchiveAccessKey Secret `key:"archive-access-key" usage:"access key id for archive-url"`
	ArchiveSecretKey Secret `key:"archive-secret-key" usage:"secret access key for archive-url"`

	AgentboxLimits     Limits `key:"agentbox-limits" usage:"limits of sandboxes made through agentbox's gRPC, as memory=4GiB,cpus=4,pids=512,disk=4GiB; what is left out is as in agentbox: 4GiB and 4 CPUs, or what the host has"`
	SandboxedLimits    Limits `key:"sandboxed-limits" usage:"the same for sandboxed's POST /sandbox; as in sandboxed: 10GiB, 1024 processes and all CPUs of the host"`
	ECSLimits          Limits `key:"ecs-sandbox-limits" usage:"the same for ecs-sandbox's POST /sandbox; what is left out is as for POST /v1/sandboxes"`
	SandboxAgentLimits Limits `key:"sandbox-agent-limits" usage:"the same for sandboxes made over MCP with the six tools of sandbox-agent alone; as in sandbox-agent: 2GiB, 2 CPUs, 512 processes; when it is set, also for those that the agent makes, which are otherwise as for POST /v1/sandboxes"`
	MCPLimits          Limits `key:"mcp-limits" usage:"the same for sandboxes made over MCP; what is left out is as for POST /v1/sandboxes"`

	HistoryRetention time.Duration `key:"history-retention" default:"168h" usage:"how long events and finished commands with their output are kept; 0: for ever"`
	HistoryOfTenant  Bytes         `key:"max-history-per-tenant" default:"10GiB" usage:"bytes of commands, events and output that are kept of a tenant, and of the sandboxes of no tenant together: over it the oldest go first; and again of the threads and assistants of the agent, whose unused threads then lose their history, and beyond which nothing is added; 0: no bound"`
	JournalPerExec   Bytes         `key:"journal-per-exec" default:"64MiB" usage:"output that is kept of one exec; what is cut is counted"`
	JournalPerBox    Bytes         `key:"journal-per-sandbox" default:"256MiB" usage:"output that is kept of one sandbox; it counts against its disk"`

	MaxStdoutChars    int `key:"max-stdout-chars" default:"50000" usage:"characters of stdout in the answer to code; 0: all"`
	MaxStderrChars    int `key:"max-stderr-chars" default:"120000" usage:"characters of stderr in the answer to code; 0: all"`
	MaxResultChars    int `key:"max-result-chars" default:"30000" usage:"characters of each text of the result in the answer to code; 0: all"`
	MaxTracebackChars int `key:"max-traceback-chars" default:"8000" usage:"characters of an error's traceback in the answer to code; 0: all"`

	ImportDirs    []string `key:"import-allowed-dirs" usage:"directories of the host that sandboxes may import from, as /dir,…; empty: none"`
	ThreadUploads Bytes    `key:"max-thread-uploads" default:"1GiB" usage:"what the uploaded files of one thread may take"`
	TenantUploads Bytes    `key:"max-tenant-uploads" default:"10GiB" usage:"what the uploaded files of all threads of a tenant may take; 0: no bound"`
	APIBaseURL    string   `key:"api-base-url" usage:"where clients reach the API, as https://host[:port][/path]; for the download URLs of exports; empty: the address that is served"`

	MemoryBudget    Bytes         `key:"memory-budget" default:"72MiB" usage:"what requests may make the daemon hold in memory, all together: bodies and answers that are not streamed; a tenant, or a token without one, has half of it, all tenants together three quarters; at least 32MiB"`
	SpoolSpace      Bytes         `key:"spool-space" default:"2GiB" usage:"space of the data directory that files within JSON bodies may take on their way, all together; shared like memory-budget, so that those of one request have at most half of it; none is taken from disk-reserve; at least 128MiB"`
	BodyLimit       Bytes         `key:"body-limit" default:"1MiB" usage:"largest JSON request body; code may take 8MiB in any case, and file uploads are not bound by it"`
	ShutdownTimeout time.Duration `key:"shutdown-timeout" default:"10s" usage:"how long open requests may go on when the daemon stops, and after them the end of the sandboxes where on-shutdown is destroy"`

	AgentModel       string        `key:"agent-model" usage:"model that the agent asks where no settings name another, as provider/model; keys come from the providers' own variables, as ANTHROPIC_API_KEY; empty: the agent is off until one is set"`
	AgentAtRoot      bool          `key:"agent-at-root" default:"false" usage:"serve the agent's API, which is below /agent, at the root too, as sandbox-agent does"`
	AgentMaxTurns    int           `key:"agent-max-turns" default:"25" usage:"how often one run of the agent may ask its model, where no settings say another number"`
	AgentTokenBudget int           `key:"agent-token-budget" default:"0" usage:"tokens that one run of the agent may use, where no settings say another number; 0: no bound"`
	AgentSkills      []string      `key:"agent-skills" usage:"folders of instructions that the agent always has, as /dir,…: every NAME.md and NAME/SKILL.md in one; empty: none"`
	AgentPrices      string        `key:"agent-prices" usage:"JSON file with prices of models, which count more than those that cubby knows: {\"provider/model\": {\"input\": 2, \"output\": 8}}, in US dollars for a million tokens; empty: none"`
	AgentRuns        int           `key:"max-agent-runs" default:"256" usage:"runs of the agent that may go on or wait at once; 0: no bound"`
	AgentRunsOf      int           `key:"max-agent-runs-per-tenant" default:"64" usage:"the same of one tenant; 0: no bound"`
	AgentThreads     int           `key:"max-agent-threads-per-tenant" default:"1000" usage:"conversations with the agent that are kept of a tenant: the longest unused goes first, with its sandboxes; 0: no bound"`
	AgentThreadAge   time.Duration `key:"agent-thread-retention" default:"0" usage:"how long a conversation that nobody goes on with is kept; 0: for ever"`
	AgentCrons       int           `key:"max-agent-crons-per-tenant" default:"100" usage:"crons, which begin runs of the agent by the clock, that a tenant may have; 0: no bound"`
	StoreItems       int           `key:"max-store-items-per-tenant" default:"10000" usage:"items that a tenant may have in the agent's store; 0: no bound"`
	StoreBytes       Bytes         `key:"max-store-bytes-per-tenant" default:"64MiB" usage:"bytes that the items of a tenant in the agent's store may take; 0: no bound"`

	WebhookNetworks []string `key:"webhook-private-networks" usage:"networks that are not public and that webhooks may lead to, as 10.1.0.0/16,…; empty: none, only the public Internet"`

	LogLevel  slog.Level `key:"log-level" default:"info" usage:"debug, info, warn or error"`
	LogFormat string     `key:"log-format" default:"text" usage:"text or json"`
}

// Images is the directory of sandbox images.
func (c Config) Images() string {
	if c.ImageDir != "" {
		return c.ImageDir
	}
	return filepath.Join(c.DataDir, "images")
}

// Authenticated reports whether requests need a token.
func (c Config) Authenticated() bool { return c.Tokens != "" && !c.AuthDisabled }

// TLS reports whether the API is served over TLS.
func (c Config) TLS() bool { return c.TLSCert != "" }

// Validate returns an errs.Invalid that names the key and says what to do.
// Values that another package parses (tokens, egress-allow) are checked where
// the daemon is assembled.
func (c Config) Validate() error {
	if err := c.validateListen("listen", c.Listen); err != nil {
		return err
	}
	if c.GRPCListen != "" {
		if err := c.validateListen("grpc-listen", c.GRPCListen); err != nil {
			return err
		}
	}
	if err := errors.Join(c.validatePreviews(), c.validateAgent()); err != nil {
		return err
	}
	switch {
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errs.E(errs.Invalid, "tls-cert and tls-key go together")
	case c.DataDir == "":
		return errs.E(errs.Invalid, "data-dir: empty")
	case c.LogFormat != "text" && c.LogFormat != "json":
		return errs.E(errs.Invalid, "log-format: %q is neither text nor json", c.LogFormat)
	case c.MaxSandboxes < 1:
		return errs.E(errs.Invalid, "max-sandboxes: %d leaves no room for a sandbox", c.MaxSandboxes)
	case c.MaxCommands < 0:
		return errs.E(errs.Invalid, "max-commands-per-tenant: not negative").Hint("0 is no bound")
	case c.MaxOfTenant < 0:
		return errs.E(errs.Invalid, "max-sandboxes-per-tenant: not negative").Hint("0 is no bound")
	case c.MaxSnapshots < 0:
		return errs.E(errs.Invalid, "max-snapshots-per-tenant: not negative").Hint("0 is no bound")
	case min(c.MaxPerTenant, c.MaxPerThread, c.MaxInThreads, c.MaxThreads) < 0:
		return errs.E(errs.Invalid, "max-per-tenant, max-per-thread, max-thread-sandboxes and max-active-threads are not negative").Hint("0 is no bound")
	case !baseURL(c.APIBaseURL):
		return errs.E(errs.Invalid, "api-base-url: %q is not http:// or https:// with a host", c.APIBaseURL)
	case slices.ContainsFunc(c.CORSOrigins, func(o string) bool { return o != "*" && !origin(o) }):
		return errs.E(errs.Invalid, "cors-origins: %q are not all origins as https://host[:port]", c.CORSOrigins)
	case slices.Contains(c.CORSOrigins, "*") && !c.Authenticated():
		return errs.E(errs.Invalid, "cors-origins: * without tokens would give every web page all sandboxes").Hint("set tokens, or name the origins")
	case c.OnShutdown != Keep && c.OnShutdown != Destroy:
		return errs.E(errs.Invalid, "on-shutdown: %q is neither keep nor destroy", c.OnShutdown)
	case !slices.Contains(idlePolicies, c.IdlePolicy):
		return errs.E(errs.Invalid, "idle-policy: %q is not stop, destroy, sleep or always_on", c.IdlePolicy)
	case outside(c.IdleTimeout) || outside(c.MaxLifetime) || outside(c.ThreadIdle) || outside(c.ThreadLife):
		return errs.E(errs.Invalid, "idle-timeout and max-lifetime, also of threads, are between 0 and %d hours", int(sandbox.MaxDuration.Hours()))
	case c.SentryPool < 0 || c.SentryPool > 100:
		return errs.E(errs.Invalid, "sentry-pool: %d is not between 0 and 100", c.SentryPool)
	case c.ContainerPool < 0 || c.ContainerPool > 100:
		return errs.E(errs.Invalid, "container-pool: %d is not between 0 and 100", c.ContainerPool)
	case c.DiskPool < 0 || c.DiskPool > 1000:
		return errs.E(errs.Invalid, "disk-pool: %d is not between 0 and 1000", c.DiskPool)
	case c.TenantDisk < sandbox.MinDiskBytes || c.TenantDisk > sandbox.MaxDiskBytes:
		return errs.E(errs.Invalid, "tenant-disk: %s is less than 16MiB or more than 1PiB", c.TenantDisk)
	case c.DiskOvercommit < 0 || math.IsNaN(c.DiskOvercommit) || math.IsInf(c.DiskOvercommit, 0):
		return errs.E(errs.Invalid, "disk-overcommit: %v is not a multiple", c.DiskOvercommit)
	case c.BodyLimit < 1024:
		return errs.E(errs.Invalid, "body-limit: %s is less than 1KiB", c.BodyLimit)
	case c.MemoryBudget < 32<<20:
		return errs.E(errs.Invalid, "memory-budget: %s is less than 32MiB", c.MemoryBudget)
	case c.SpoolSpace < 128<<20:
		return errs.E(errs.Invalid, "spool-space: %s is less than 128MiB", c.SpoolSpace)
	case c.JournalPerExec < 4096 || c.JournalPerBox < c.JournalPerExec:
		return errs.E(errs.Invalid, "journal-per-sandbox must be at least journal-per-exec, and that at least 4KiB")
	case c.PackagesTimeout <= 0 || outside(c.PackagesTimeout):
		return errs.E(errs.Invalid, "packages-timeout: %s is no time to install packages in", c.PackagesTimeout)
	case c.HistoryRetention < 0 || c.ShutdownTimeout < 0:
		return errs.E(errs.Invalid, "history-retention and shutdown-timeout are not negative")
	}
	return nil
}

// baseURL accepts "".
func baseURL(text string) bool {
	u, err := url.Parse(text)
	return text == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.RawQuery == "" && u.Fragment == ""
}

// origin reports whether a text is one as browsers write it.
func origin(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.Scheme+"://"+u.Host == text
}

// validateListen refuses an address that is none, and one that would give
// other machines what they need no token for.
func (c Config) validateListen(key, listen string) error {
	host, err := listenHost(key, listen)
	if err != nil {
		return err
	}
	if c.Authenticated() || loopbackHost(host) {
		return nil
	}
	what := "there are no tokens"
	if c.AuthDisabled {
		what = "authentication is disabled"
	}
	return errs.E(errs.Invalid, "%s: %s is reachable from other machines and %s", key, listen, what).
		Hint("set CUBBY_TOKENS=name:secret, or listen on 127.0.0.1")
}

// listenHost returns the host of an address to listen on.
func listenHost(key, listen string) (host string, err error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", errs.E(errs.Invalid, "%s: %q is not host:port", key, listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", errs.E(errs.Invalid, "%s: %q has no port number", key, listen)
	}
	return host, nil
}

var idlePolicies = []sandbox.IdlePolicy{sandbox.IdleStop, sandbox.IdleDestroy, sandbox.IdleSleep, sandbox.IdleAlwaysOn}

func outside(d time.Duration) bool { return d < 0 || d > sandbox.MaxDuration }

// OnShutdown is what becomes of the sandboxes when the daemon stops in good
// order.
type OnShutdown string

// What can become of them.
const (
	Keep    OnShutdown = "keep"    // they go on, and the next daemon takes them over
	Destroy OnShutdown = "destroy" // all end, with their disks
)

func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Secret is text that never prints itself.
type Secret string

func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[redacted]"
}

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText keeps the secret out of JSON and structured logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Bytes is a size, written with or without a unit: 1073741824, 512MiB, 10GB.
type Bytes int64

var units = []struct {
	suffix string
	factor float64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1},
}

// ParseBytes reads a size. A bare number is bytes.
func ParseBytes(s string) (Bytes, error) {
	number, factor := s, 1.0
	for _, u := range units {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			number, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && factor == 1 && n >= 0 {
		return Bytes(n), nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f*factor >= math.MaxInt64 {
		return 0, errs.E(errs.Invalid, "%q is not a size", s).Hint("write bytes, or a number with KiB, MiB, GiB, TiB, kB, MB, GB or TB")
	}
	return Bytes(f * factor), nil
}

// String gives the shortest exact form with a unit, or the bare number.
func (b Bytes) String() string {
	var short string
	for _, u := range units {
		factor := Bytes(u.factor)
		if b == 0 || factor == 1 || b%factor != 0 {
			continue
		}
		if s := strconv.FormatInt(int64(b/factor), 10) + u.suffix; short == "" || len(s) < len(short) {
			short = s
		}
	}
	if short == "" {
		return strconv.FormatInt(int64(b), 10)
	}
	return short
}
