package config

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documentedVariables are all that the servers of the other systems document, by what
// becomes of them here.
var documentedVariables = []struct{ system, read, refused, shared, elsewhere string }{
	{
		system: "sandboxed",
		read: `SANDBOXD_API_AUTH_DISABLED SANDBOXD_API_BIND SANDBOXD_API_TOKENS SANDBOXD_AUTH_REDIRECT_URL SANDBOXD_DATA_DIR
			SANDBOXD_FORWARD_AUTH_DENY_MODE SANDBOXD_IDLE_THRESHOLD_SECONDS SANDBOXD_PREVIEW_TOKEN_SECRETS SANDBOXED_API_BIND SANDBOXED_DATA_DIR`,
		refused: `SANDBOXD_ACCESS_LOG SANDBOXD_ADDR SANDBOXD_DB SANDBOXD_DEBUG SANDBOXD_ENV_FILE SANDBOXD_GIT_TOKEN_PATH
			SANDBOXD_IDLE_REAP_INTERVAL_SECONDS SANDBOXD_IMAGE SANDBOXD_KEEPALIVE_MAX_SECONDS SANDBOXD_LIBRARY_DIR SANDBOXD_LLM_TXT_PATH
			SANDBOXD_LOG_DIR SANDBOXD_MEM_EMERGENCY_PCT SANDBOXD_MEM_HEADROOM_PCT SANDBOXD_MEM_REFUSE_WAKES_PCT SANDBOXD_MIGRATIONS
			SANDBOXD_NETWORK SANDBOXD_PRESSURE_INTERVAL_SECONDS SANDBOXD_SET_MEMORY_HIGH SANDBOXD_SNAPSHOT_IDLE_HOURS
			SANDBOXD_SNAPSHOT_RETENTION_DAYS SANDBOXD_TAILER_OFFSET SANDBOXD_TEMPLATES_DIR SANDBOXD_USERNS SANDBOXD_WAKE_COST_MB
			SANDBOXD_WAKE_GRACE_SECONDS SANDBOXD_WAKE_TCP_READY_TIMEOUT_SECONDS`,
		shared: "HTTP_PORT PREVIEW_DOMAIN PREVIEW_ENTRYPOINT PREVIEW_TLS",
		// By their beginning.
		elsewhere: "SANDBOXD_POLLER_INTERVAL_SECONDS SANDBOXD_POLLER_METRIC_RE SANDBOXD_POLLER_SERVICE_LABEL SANDBOXD_POLLER_URL",
	},
	{
		system: "ecs-sandbox",
		refused: `CLEANUP_ARCHIVE_TO_S3 CLEANUP_RETENTION_DAYS CLEANUP_S3_BUCKET CLEANUP_STALE_THRESHOLD_MINUTES EFS_WORKSPACE_ROOT
			S3_WORKSPACE_BUCKET SANDBOX_CPU_LIMIT SANDBOX_IMAGE SANDBOX_MEMORY_LIMIT SANDBOX_NETWORK SANDBOX_PIDS_LIMIT SANDBOX_SECRET WORKSPACE_BACKEND`,
		shared: "DB_PATH DEBUG DEFAULT_TTL_SECONDS DEV_MODE LISTEN_ADDRESS LISTEN_PORT MAX_CONTAINERS REDIS_URL",
	},
	{
		system:  "agentbox",
		refused: "SANDBOX_IMAGE SANDBOX_RUNTIME",
		shared:  "GRPC_PORT PROXY_HOST PROXY_PORT SESSION_TIMEOUT SIGNING_KEY STORAGE_PATH",
	},
	{
		system: "sandbox-agent",
		refused: `AEGRA_CONFIG CONTAINER_CPU_QUOTA CONTAINER_EXECUTE_AS_ROOT CONTAINER_EXECUTION_TIMEOUT_SECONDS CONTAINER_MAX_SESSIONS
			CONTAINER_MAX_SESSIONS_PER_THREAD CONTAINER_MEMORY_LIMIT CONTAINER_NETWORK_ENABLED CONTAINER_ORPHAN_MIN_AGE_SECONDS CONTAINER_PIDS_LIMIT
			CONTAINER_READ_ONLY_ROOTFS CONTAINER_TMPFS_SIZE SESSION_GC_INTERVAL_SECONDS SESSION_IDLE_TTL_SECONDS SESSION_MAX_ACTIVE_THREADS
			SESSION_MAX_LIFETIME_SECONDS`,
		shared: `API_BASE_URL AUTH_TYPE ENCRYPTION_KEY IMPORT_ALLOWED_DIRS MAX_ITERATIONS MAX_RESULT_CHARS MAX_STDERR_CHARS MAX_STDOUT_CHARS
			MAX_TRACEBACK_CHARS POSTGRES_DB POSTGRES_HOST POSTGRES_PASSWORD POSTGRES_PORT POSTGRES_USER STORAGE_DIR`,
		// By the agent's settings.
		elsewhere: "CHAT_MODEL CHAT_MODEL_API_KEY CHAT_MODEL_BASE_URL CHAT_MODEL_PROVIDER CHAT_MODEL_SUPPORTS_VISION",
	},
}

// TestEveryDocumentedVariable: each variable that another system documents is read, or
// is refused with what to do instead.
func TestEveryDocumentedVariable(t *testing.T) {
	var read, refused, shared []string
	for _, d := range documentedVariables {
		read, refused, shared = append(read, strings.Fields(d.read)...), append(refused, strings.Fields(d.refused)...), append(shared, strings.Fields(d.shared)...)
		for _, name := range strings.Fields(d.elsewhere) {
			if err := referenceEnv([]string{name + "=1"}, map[string]string{}); (err != nil) != (d.system == "sandboxed") {
				t.Errorf("%s of %s: %v", name, d.system, err)
			}
		}
	}
	for _, tt := range []struct {
		what      string
		want, got []string
	}{
		{"read", read, slices.Collect(maps.Keys(readVariables))},
		{"refused", refused, slices.Collect(maps.Keys(refusedVariables))},
		{"refused beside others", shared, slices.Collect(maps.Keys(sharedVariables))},
	} {
		slices.Sort(tt.want)
		slices.Sort(tt.got)
		if d := cmp.Diff(slices.Compact(tt.want), tt.got); d != "" {
			t.Errorf("those that are %s (-documented +known):\n%s", tt.what, d)
		}
	}
	for _, known := range []map[string]string{refusedVariables, sharedVariables} {
		for name, instead := range known {
			if instead == "" {
				t.Errorf("%s: nothing says what to set instead", name)
			}
			// A setting that is named must be one.
			for _, own := range regexp.MustCompile("CUBBY_[A-Z_]+").FindAllString(instead, -1) {
				if !slices.Contains(ownVariables(), own) {
					t.Errorf("%s: there is no %s", name, own)
				}
			}
		}
	}
}

// ownVariables are cubby's.
func ownVariables() []string {
	names := []string{FileKey().Env}
	for _, k := range Keys() {
		names = append(names, k.Env)
	}
	return names
}

// TestReadVariablesAreDocumented compares those that are read with the table of the
// documentation, and the setting that stands beside each.
func TestReadVariablesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Variables of other systems\n")
	section, _, _ = strings.Cut(section, "\n## ")
	want, got := map[string]string{}, map[string]string{}
	for name, v := range readVariables {
		want[name] = envName(v.key)
	}
	for _, row := range regexp.MustCompile("(?m)^\\| ([A-Z_, ]+) \\| `([A-Z_]+)`").FindAllStringSubmatch(section, -1) {
		for _, name := range strings.Split(row[1], ", ") {
			got[name] = row[2]
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the table of docs/configuration.md (-read +documented):\n%s", d)
	}
}
