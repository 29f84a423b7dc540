package config_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestVariablesOfOtherSystemsAreReadOrRefused(t *testing.T) {
	c, err := config.Load(nil, []string{"SANDBOXD_IDLE_THRESHOLD_SECONDS=2100", "SANDBOXED_API_BIND=127.0.0.1:9191", "SANDBOXED_DATA_DIR=/srv/cubby"})
	if err != nil || c.IdleTimeout != 35*time.Minute || c.Listen != "127.0.0.1:9191" || c.DataDir != "/srv/cubby" {
		t.Errorf("Load = %s %s %s, %v", c.IdleTimeout, c.Listen, c.DataDir, err)
	}
	c, err = config.Load(nil, []string{"SANDBOXD_PREVIEW_TOKEN_SECRETS=one=secret-of-the-app", "SANDBOXD_AUTH_REDIRECT_URL=https://app/", "SANDBOXD_FORWARD_AUTH_DENY_MODE=meta-refresh"})
	if err != nil || c.PreviewKeys != "one=secret-of-the-app" || c.AuthRedirectURL != "https://app/" || c.ForwardAuthDeny != "meta-refresh" {
		t.Errorf("Load = %s %s %s, %v", c.PreviewKeys, c.AuthRedirectURL, c.ForwardAuthDeny, err)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "secret-of-the-app") {
		t.Error("a configuration that is printed shows the keys of tokens")
	}
	for _, environ := range [][]string{
		{"SANDBOXD_MEM_HEADROOM_PCT=15"}, {"SANDBOX_MEMORY_LIMIT=512m"}, {"CONTAINER_MAX_SESSIONS=5"}, {"SANDBOXD_POLLER_URL=x"},
		{"SANDBOX_RUNTIME=runsc", "STORAGE_PATH=/x"}, {"SANDBOX_SECRET=s", "DEBUG=True", "DEV_MODE=True"}, {"CONTAINER_READ_ONLY_ROOTFS=true"},
		{"CONTAINER_PIDS_LIMIT=5", "POSTGRES_USER=u", "POSTGRES_PASSWORD=p", "POSTGRES_DB=d", "POSTGRES_HOST=h", "POSTGRES_PORT=5432", "AUTH_TYPE=noop"},
		{"SANDBOXD_IDLE_THRESHOLD_SECONDS=60", "CUBBY_IDLE_TIMEOUT=2m"},
	} {
		_, err := config.Load(nil, environ)
		if err == nil || errs.KindOf(err) != errs.Invalid {
			t.Errorf("%v: Load = %v, want invalid", environ, err)
			continue
		}
		info := errs.Public(err)
		for _, kv := range environ {
			if name, _, _ := strings.Cut(kv, "="); !strings.Contains(info.Message+info.Hint, name) {
				t.Errorf("%v: %q does not name %s", environ, info.Message, name)
			}
		}
	}
	// What any program could have is none of cubby's business.
	if _, err := config.Load(nil, []string{"STORAGE_PATH=/x", "HTTP_PORT=80", "POSTGRES_HOST=db", "POSTGRES_PASSWORD=x", "AUTH_TYPE=noop", "DEBUG=1", "DEV_MODE=True", "SANDBOX_MEMORY_LIMIT="}); err != nil {
		t.Errorf("names that other programs have = %v", err)
	}
}

func TestLimitsOfInterfaces(t *testing.T) {
	c, err := config.Load([]string{"--mcp-limits", "memory=512MiB, cpus=1.5,pids=100,disk=1GiB"}, nil)
	want := config.Limits{MemoryBytes: 512 << 20, CPUs: 1.5, PIDs: 100, DiskBytes: 1 << 30}
	if err != nil || c.MCPLimits != want || c.AgentboxLimits != (config.Limits{}) {
		t.Errorf("Load = %+v, %v", c.MCPLimits, err)
	}
	for _, text := range []string{"memory", "memory=much", "ram=1GiB", "cpus=two", "pids=-"} {
		if _, err := config.ParseLimits(text); errs.KindOf(err) != errs.Invalid {
			t.Errorf("ParseLimits(%q) = %v, want invalid", text, err)
		}
	}
}
