package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/client/settings"
	agentsettings "github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestSettings(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{
		Environ: map[string]string{"ANTHROPIC_API_KEY": "sk-hush-environment"},
		Asking: &agentsettings.Asking{
			Models: func(_ context.Context, e agentsettings.Endpoint) ([]agentsettings.Model, error) {
				if e.Provider == "anthropic" {
					return nil, errs.E(errs.Unavailable, "it is away")
				}
				return []agentsettings.Model{{ID: "gpt-4o", Name: "GPT", Context: 128000}}, nil
			},
			Test: func(_ context.Context, e agentsettings.Endpoint, model string) error {
				if string(e.Key) != "sk-hush-of-openai" || model != "gpt-4o" {
					return errors.New("asked with something else")
				}
				return nil
			},
		},
	})
	for _, tt := range []struct {
		args   string
		in     string
		code   int
		out    string // all of it, or with … what it contains
		stderr string // what it contains
	}{
		{"get", "", 0, "NAME              VALUE                 SET BY\nanthropic.key     sk-••••••••••••ment   environment\nsupports_vision   auto                  \n", ""},
		{"set model=openai/gpt-4o openai.key approval.exec=ask max_iterations=9", "sk-hush-of-openai\n", 0, "model\nopenai.key\napproval.exec\nmax_iterations\n", ""},
		{"get", "", 0, "…openai.key        sk-••••••••••enai     operator\n", ""},
		{"get model", "", 0, "openai/gpt-4o\n", ""},
		{"get openai.key", "", 0, "sk-••••••••••enai\n", ""},
		{"get openai.base_url", "", 1, "", "openai.base_url is not set"},
		{"get nothing.else", "", 1, "", "nothing.else is not the name of a setting"},
		{"", "", 0, "…approval.exec     ask                   operator\n", ""},
		{"test", "", 0, "openai/gpt-4o answers\n", ""},
		{"test openai/gpt-5", "", 1, "", "cubby: "},
		{"models", "", 0, "MODEL           CONTEXT   NAME\nopenai/gpt-4o   128000    GPT\n", "anthropic: it is away"},
		{"models openai", "", 0, "…openai/gpt-4o", ""},
		{"models none", "", 1, "", "no provider"},
		{"set ollama.key=hush-typed", "", 0, "ollama.key\n", "warning: ollama.key is on the command line"},
		{"set openai.key", "", 1, "", "the value is empty"},
		{"set openai.key a.key", "x", 1, "", "one at a time"},
		{"set model=gpt", "", 1, "", "not provider/model"},
		{"set max_iterations=x", "", 1, "", "not a number"},
		{"rm ollama approval.exec max_iterations", "", 0, "", ""},
		{"rm", "", 1, "", "--all"},
		{"rm --all model", "", 1, "", "--all"},
		{"get approval.exec", "", 1, "", "is not set"},
		{"get ollama.key", "", 1, "", "is not set"},
		{"rm --all", "", 0, "", ""},
		{"get model", "", 1, "", "is not set"},
	} {
		res := cubby(t, d.URL, strings.NewReader(tt.in), append([]string{"settings"}, strings.Fields(tt.args)...)...)
		part, some := strings.CutPrefix(tt.out, "…")
		if res.code != tt.code || some && !strings.Contains(res.stdout, part) || !some && res.stdout != tt.out || !strings.Contains(res.stderr, tt.stderr) {
			t.Errorf("settings %s = %+v, want %d %q %q", tt.args, res, tt.code, tt.out, tt.stderr)
		}
		if strings.Contains(res.stdout+res.stderr, "hush") {
			t.Errorf("settings %s shows a key: %+v", tt.args, res)
		}
	}
	res := cubby(t, d.URL, nil, "settings", "get", "--json")
	var s settings.Settings
	if err := json.Unmarshal([]byte(res.stdout), &s); err != nil || s.Effective.Providers["anthropic"].KeyHint == nil {
		t.Errorf("get --json = %+v, %v", res, err)
	}
}

// TestKeyIsAskedForWithoutEcho types a key on a terminal.
func TestKeyIsAskedForWithoutEcho(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := sit(t, d.URL, "settings", "set", "openai.key")
	s.wait("Value of openai.key: ")
	s.typed("hush-5be00d21\r")
	s.wait("\nopenai.key")
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(s.text, "hush") {
		t.Errorf("the terminal shows %q", s.text)
	}
	if res := cubby(t, d.URL, nil, "settings", "get", "openai.key"); res.stdout != "hus••••••0d21\n" {
		t.Errorf("get = %+v", res)
	}
}
