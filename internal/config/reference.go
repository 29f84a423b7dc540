package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Users of sandboxed, ecs-sandbox, agentbox and sandbox-agent bring their
// variables along. Those with a counterpart of the same meaning are read. Those
// that only such a system has are refused by name, so that nobody relies on a
// setting that has no effect. Names that any program could have (STORAGE_PATH,
// MAX_CONTAINERS) are refused only beside one that tells the system.

// readVariables are read: the key, and how the value is written there.
var readVariables = map[string]struct {
	key  string
	text func(string) string
}{
	"SANDBOXD_API_TOKENS":             {"tokens", same},
	"SANDBOXD_API_AUTH_DISABLED":      {"auth-disabled", sandboxedBool},
	"SANDBOXD_IDLE_THRESHOLD_SECONDS": {"idle-timeout", inSeconds},
	"SANDBOXD_PREVIEW_TOKEN_SECRETS":  {"preview-token-keys", same},
	"SANDBOXD_AUTH_REDIRECT_URL":      {"auth-redirect-url", same},
	"SANDBOXD_FORWARD_AUTH_DENY_MODE": {"forward-auth-deny-mode", same},
	"SANDBOXED_DATA_DIR":              {"data-dir", same},
	"SANDBOXD_DATA_DIR":               {"data-dir", same},
	"SANDBOXED_API_BIND":              {"listen", same},
	"SANDBOXD_API_BIND":               {"listen", same},
}

func same(s string) string { return s }

func inSeconds(s string) string { return s + "s" }

// sandboxedBool is true for all but "", 0, false and no.
func sandboxedBool(s string) string {
	switch strings.ToLower(s) {
	case "0", "false", "no":
		return "false"
	}
	return "true"
}

// refusedVariables say what to set instead.
var refusedVariables = map[string]string{
	// sandboxed
	"SANDBOXD_ADDR":                           "set CUBBY_LISTEN",
	"SANDBOXD_IMAGE":                          "name the image base, or give it with every create",
	"SANDBOXD_NETWORK":                        "there are no container networks; set CUBBY_EGRESS_ALLOW for what sandboxes may reach",
	"SANDBOXD_USERNS":                         "containers get a user namespace where the host can give one",
	"SANDBOXD_DB":                             "the database is below CUBBY_DATA_DIR, or set CUBBY_DATABASE_URL",
	"SANDBOXD_MIGRATIONS":                     "migrations are built in",
	"SANDBOXD_LOG_DIR":                        "logs go to standard error",
	"SANDBOXD_SET_MEMORY_HIGH":                "set CUBBY_SANDBOXED_LIMITS=memory=…",
	"SANDBOXD_IDLE_REAP_INTERVAL_SECONDS":     "set CUBBY_IDLE_TIMEOUT; to keep idle sandboxes, CUBBY_IDLE_POLICY=always_on",
	"SANDBOXD_PRESSURE_INTERVAL_SECONDS":      "set CUBBY_MIN_FREE_MEMORY",
	"SANDBOXD_MEM_HEADROOM_PCT":               "set CUBBY_MIN_FREE_MEMORY",
	"SANDBOXD_MEM_REFUSE_WAKES_PCT":           "set CUBBY_MIN_FREE_MEMORY",
	"SANDBOXD_MEM_EMERGENCY_PCT":              "set CUBBY_MIN_FREE_MEMORY",
	"SANDBOXD_WAKE_COST_MB":                   "set CUBBY_MIN_FREE_MEMORY",
	"SANDBOXD_WAKE_TCP_READY_TIMEOUT_SECONDS": "requests of previews wait up to 30 seconds for a sandbox that wakes",
	"SANDBOXD_WAKE_GRACE_SECONDS":             "a preview keeps its sandbox awake while it is used",
	"SANDBOXD_KEEPALIVE_MAX_SECONDS":          "keepalives of sandboxed's interface are at most a day",
	"SANDBOXD_SNAPSHOT_RETENTION_DAYS":        "snapshots are kept until they are deleted; CUBBY_MAX_SNAPSHOTS_PER_TENANT and CUBBY_MAX_SNAPSHOT_BYTES_PER_TENANT bound them",
	"SANDBOXD_SNAPSHOT_IDLE_HOURS":            "snapshots are made with POST /v1/snapshots, and kept until they are deleted",
	"SANDBOXD_ENV_FILE":                       "set CUBBY_CONFIG, or EnvironmentFile of the systemd unit",
	"SANDBOXD_TEMPLATES_DIR":                  "there are no templates",
	"SANDBOXD_LIBRARY_DIR":                    "there is no library",
	"SANDBOXD_LLM_TXT_PATH":                   "the API is described at /openapi.json",
	"SANDBOXD_GIT_TOKEN_PATH":                 "give credentials with git's calls",
	"SANDBOXD_ACCESS_LOG":                     "the daemon serves previews itself",
	"SANDBOXD_TAILER_OFFSET":                  "the daemon serves previews itself",
	"SANDBOXD_DEBUG":                          "set CUBBY_LOG_LEVEL=debug",
	// ecs-sandbox
	"SANDBOX_SECRET":                  "set CUBBY_TOKENS=name:secret; X-Sandbox-Secret takes the secret",
	"SANDBOX_MEMORY_LIMIT":            "set CUBBY_ECS_SANDBOX_LIMITS=memory=…",
	"SANDBOX_CPU_LIMIT":               "set CUBBY_ECS_SANDBOX_LIMITS=cpus=…",
	"SANDBOX_PIDS_LIMIT":              "set CUBBY_ECS_SANDBOX_LIMITS=pids=…",
	"SANDBOX_NETWORK":                 "set CUBBY_EGRESS_ALLOW for what sandboxes may reach",
	"WORKSPACE_BACKEND":               "set CUBBY_ARCHIVE_URL",
	"EFS_WORKSPACE_ROOT":              "set CUBBY_DATA_DIR",
	"S3_WORKSPACE_BUCKET":             "set CUBBY_ARCHIVE_URL=s3://bucket",
	"CLEANUP_STALE_THRESHOLD_MINUTES": "give ttl_seconds with POST /sandbox",
	"CLEANUP_RETENTION_DAYS":          "set CUBBY_HISTORY_RETENTION",
	"CLEANUP_ARCHIVE_TO_S3":           "set CUBBY_ARCHIVE_URL",
	"CLEANUP_S3_BUCKET":               "set CUBBY_ARCHIVE_URL=s3://bucket",
	// agentbox
	"SANDBOX_IMAGE":   "name the image base, or give it with every create",
	"SANDBOX_RUNTIME": "gVisor is the default; give isolation with a create",
	// sandbox-agent
	"CONTAINER_MEMORY_LIMIT":              "set CUBBY_SANDBOX_AGENT_LIMITS=memory=…",
	"CONTAINER_CPU_QUOTA":                 "set CUBBY_SANDBOX_AGENT_LIMITS=cpus=…",
	"CONTAINER_PIDS_LIMIT":                "set CUBBY_SANDBOX_AGENT_LIMITS=pids=…",
	"CONTAINER_TMPFS_SIZE":                "set CUBBY_SANDBOX_AGENT_LIMITS=disk=…",
	"CONTAINER_EXECUTION_TIMEOUT_SECONDS": "give timeout with execute_code",
	"CONTAINER_MAX_SESSIONS":              "set CUBBY_MAX_THREAD_SANDBOXES",
	"CONTAINER_MAX_SESSIONS_PER_THREAD":   "set CUBBY_MAX_PER_THREAD",
	"CONTAINER_READ_ONLY_ROOTFS":          "the image stays as it is: what a sandbox writes is its own",
	"CONTAINER_EXECUTE_AS_ROOT":           "give user with POST /v1/sandboxes",
	"CONTAINER_NETWORK_ENABLED":           "give network with POST /v1/sandboxes",
	"CONTAINER_ORPHAN_MIN_AGE_SECONDS":    "orphans are removed when they are found",
	"SESSION_IDLE_TTL_SECONDS":            "set CUBBY_THREAD_IDLE_TIMEOUT",
	"SESSION_MAX_LIFETIME_SECONDS":        "set CUBBY_THREAD_MAX_LIFETIME",
	"SESSION_GC_INTERVAL_SECONDS":         "set CUBBY_THREAD_IDLE_TIMEOUT",
	"SESSION_MAX_ACTIVE_THREADS":          "set CUBBY_MAX_ACTIVE_THREADS",
	"AEGRA_CONFIG":                        "the agent's API is at /agent, and at the root with CUBBY_AGENT_AT_ROOT=true",
}

// sharedVariables are names that other programs on a host may well have. They
// are refused beside a variable of the system that they belong to.
var sharedVariables = map[string]string{
	"MAX_ITERATIONS":      "set CUBBY_AGENT_MAX_TURNS",
	"ENCRYPTION_KEY":      "the key that seals secrets is in CUBBY_DATA_DIR",
	"PREVIEW_DOMAIN":      "set CUBBY_PREVIEW_DOMAIN=preview.DOMAIN",
	"PREVIEW_ENTRYPOINT":  "set CUBBY_PREVIEW_TLS_CERT and CUBBY_PREVIEW_TLS_KEY, or CUBBY_PREVIEW_URL where a proxy stands in front",
	"PREVIEW_TLS":         "set CUBBY_PREVIEW_TLS_CERT and CUBBY_PREVIEW_TLS_KEY, or CUBBY_PREVIEW_URL where a proxy stands in front",
	"DEFAULT_TTL_SECONDS": "give ttl_seconds with POST /sandbox",
	"MAX_CONTAINERS":      "set CUBBY_MAX_SANDBOXES",
	"GRPC_PORT":           "set CUBBY_GRPC_LISTEN=127.0.0.1:50051",
	"SIGNING_KEY":         "set CUBBY_EGRESS_SIGNING_KEY",
	"STORAGE_PATH":        "set CUBBY_DATA_DIR",
	"SESSION_TIMEOUT":     "sessions of agentbox's interface end after 30 minutes without use",
	"PROXY_HOST":          "set CUBBY_EGRESS_PROXY",
	"PROXY_PORT":          "set CUBBY_EGRESS_PROXY",
	"LISTEN_ADDRESS":      "set CUBBY_LISTEN",
	"LISTEN_PORT":         "set CUBBY_LISTEN",
	"HTTP_PORT":           "set CUBBY_PREVIEW_LISTEN",
	"DB_PATH":             "the database is below CUBBY_DATA_DIR",
	"REDIS_URL":           "no Redis is needed",
	"DEV_MODE":            "there is no such mode; set CUBBY_LOG_LEVEL=debug for more logs",
	"DEBUG":               "set CUBBY_LOG_LEVEL=debug",
	"POSTGRES_USER":       "set CUBBY_DATABASE_URL; none is needed",
	"POSTGRES_PASSWORD":   "set CUBBY_DATABASE_URL; none is needed",
	"POSTGRES_DB":         "set CUBBY_DATABASE_URL; none is needed",
	"POSTGRES_HOST":       "set CUBBY_DATABASE_URL; none is needed",
	"POSTGRES_PORT":       "set CUBBY_DATABASE_URL; none is needed",
	"AUTH_TYPE":           "set CUBBY_TOKENS, or CUBBY_AUTH_DISABLED=true",
	"API_BASE_URL":        "set CUBBY_API_BASE_URL",
	"STORAGE_DIR":         "set CUBBY_DATA_DIR",
	"IMPORT_ALLOWED_DIRS": "set CUBBY_IMPORT_ALLOWED_DIRS",
	"MAX_STDOUT_CHARS":    "set CUBBY_MAX_STDOUT_CHARS",
	"MAX_STDERR_CHARS":    "set CUBBY_MAX_STDERR_CHARS",
	"MAX_RESULT_CHARS":    "set CUBBY_MAX_RESULT_CHARS",
	"MAX_TRACEBACK_CHARS": "set CUBBY_MAX_TRACEBACK_CHARS",
}

// referenceEnv reads the variables of the other systems into values, or refuses
// them.
func referenceEnv(environ []string, values map[string]string) error {
	read := make(map[string]string) // by key: the variable it came from
	refused := make(map[string]string)
	shared := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if value == "" {
			continue
		}
		if v, ok := readVariables[name]; ok {
			text := v.text(value)
			own, set := values[v.key]
			from := envName(v.key)
			if read[v.key] != "" {
				from = read[v.key]
			}
			// Cubby's own name says whether there is authentication.
			if set && own != text && v.key != "auth-disabled" {
				return errs.E(errs.Invalid, "%s and %s are both set and differ", from, name)
			}
			if !set {
				values[v.key], read[v.key] = text, name
			}
			continue
		}
		if instead, ok := refusedVariables[name]; ok || strings.HasPrefix(name, "SANDBOXD_POLLER_") {
			refused[name] = instead
		} else if instead, ok := sharedVariables[name]; ok {
			shared[name] = instead
		}
	}
	if len(refused) == 0 {
		return nil
	}
	maps.Copy(refused, shared)
	var hints []string
	names := slices.Sorted(maps.Keys(refused))
	for _, name := range names {
		if refused[name] == "" {
			refused[name] = "the daemon sees by itself which sandboxes are used"
		}
		hints = append(hints, name+": "+refused[name])
	}
	return errs.E(errs.Invalid, "%s: a variable of another system that has no effect here", strings.Join(names, ", ")).
		Hint("unset it; %s", strings.Join(hints, "; "))
}
