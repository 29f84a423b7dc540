package task

import (
	"encoding/json"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// DefaultAgent does a task that names none.
const DefaultAgent = "opencode"

// The variables that providers of models are told by.
const (
	anthropicKey   = "ANTHROPIC_API_KEY"
	anthropicToken = "ANTHROPIC_AUTH_TOKEN"
	anthropicURL   = "ANTHROPIC_BASE_URL"
	openaiKey      = "OPENAI_API_KEY"
	openaiURL      = "OPENAI_BASE_URL"
	geminiKey      = "GEMINI_API_KEY"
	geminiURL      = "GOOGLE_GEMINI_BASE_URL"
	openrouterKey  = "OPENROUTER_API_KEY"
)

const (
	anthropicHost  = "api.anthropic.com:443"
	openaiHost     = "api.openai.com:443"
	geminiHost     = "generativelanguage.googleapis.com:443"
	openrouterHost = "openrouter.ai:443"
	opencodeHost   = "opencode.ai:443"
)

// known is an agent that is known by its name.
type known struct {
	keys []string
	// define makes the agent for a model, which is "" for the agent's default.
	define func(model string, env map[string]string) (Agent, error)
	// providers are where models are asked, see [Providers].
	providers func(model string, known, trusted map[string]string) []string
}

func agents() map[string]known {
	return map[string]known{
		"opencode": {
			keys:      []string{anthropicKey, anthropicURL, openaiKey, openaiURL, geminiKey, geminiURL, openrouterKey},
			define:    opencode,
			providers: opencodeProviders,
		},
		"claude": {
			keys:   []string{anthropicKey, anthropicToken, anthropicURL},
			define: claude,
			providers: func(_ string, _, trusted map[string]string) []string {
				return []string{serverOf(trusted[anthropicURL], anthropicHost)}
			},
		},
		"codex": {
			keys:   []string{openaiKey, openaiURL},
			define: codex,
			providers: func(_ string, _, trusted map[string]string) []string {
				return []string{serverOf(trusted[openaiURL], openaiHost)}
			},
		},
		"gemini": {
			keys:   []string{geminiKey, geminiURL},
			define: gemini,
			providers: func(_ string, _, trusted map[string]string) []string {
				return []string{serverOf(trusted[geminiURL], geminiHost)}
			},
		},
	}
}

// Names lists the agents that Known knows.
func Names() []string { return slices.Sorted(maps.Keys(agents())) }

// Keys are the variables that an agent's provider is told by: keys and addresses.
// Those that an operator set reach the agent's environment.
func Keys(agent string) []string { return agents()[agent].keys }

// Known returns how an agent is started that is known by its name. Env has what the
// task's environment sets of its [Keys], to choose a provider by; its values end up
// in no field of the result but as addresses of servers. It is Invalid for a name
// that is not known, and for a model that the agent cannot be given.
func Known(name, model string, env map[string]string) (Agent, error) {
	a, ok := agents()[name]
	if !ok {
		return Agent{}, errs.E(errs.Invalid, "agent: %.40q is not known", name)
	}
	if !modelName(model) {
		return Agent{}, errs.E(errs.Invalid, "model: %.100q is no name of a model", model)
	}
	def, err := a.define(model, env)
	if err != nil {
		return Agent{}, err
	}
	def.Name, def.Protocol = name, ACP
	return def, nil
}

// Providers are the hosts and ports of the servers that an agent's model may be asked
// at. Known has what the agent will find of its [Keys], and tells which providers it
// has; where they are is only believed of trusted, which has what the operator set,
// and is else the default of each. There are several when the agent has keys of
// several and no model is named. What is on loopback is not among them.
func Providers(name, model string, known, trusted map[string]string) []string {
	a, ok := agents()[name]
	if !ok {
		return nil
	}
	var all []string
	for _, host := range a.providers(model, known, trusted) {
		if host != "" && !slices.Contains(all, host) {
			all = append(all, host)
		}
	}
	return all
}

// modelName reports whether a model can have a name: it becomes an argument, and
// a part of settings.
func modelName(model string) bool {
	const longest = 200
	if len(model) > longest || strings.HasPrefix(model, "-") {
		return false
	}
	for _, c := range model {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@+[]", c) {
			return false
		}
	}
	return true
}

// serverOf is the host and port of an address; without one it is the default's. ""
// for one on loopback, and for what is no address.
func serverOf(address, otherwise string) string {
	if address == "" {
		return otherwise
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	case u.Scheme == "http":
		port = "80"
	default:
		return ""
	}
	host := strings.ToLower(u.Hostname())
	if ip, err := netip.ParseAddr(host); host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// settings is a document of JSON.
type settings map[string]any

func (s settings) text() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // it holds texts and maps only
	}
	return string(b)
}

// compatible is the id of OpenCode's provider for a server that speaks OpenAI's
// protocol.
const compatible = "openai-compatible"

// opencode defines OpenCode. Its models are named provider/model. A server at
// OPENAI_BASE_URL serves every model but those of other providers.
func opencode(model string, env map[string]string) (Agent, error) {
	providers := settings{}
	if env[anthropicURL] != "" {
		providers["anthropic"] = settings{"options": settings{"baseURL": apiBase(env[anthropicURL], "/v1")}}
	}
	if env[geminiURL] != "" {
		providers["google"] = settings{"options": settings{"baseURL": apiBase(env[geminiURL], "/v1beta")}}
	}
	config := settings{"share": "disabled", "autoupdate": false, "provider": providers}
	if env[openaiURL] != "" && model != "" {
		provider, name, ok := strings.Cut(model, "/")
		if !ok {
			provider, name = compatible, model
		}
		switch provider {
		case "anthropic", "google", "openrouter", "opencode":
		case "openai": // OpenCode's own provider of that name speaks another protocol
			provider = compatible
			fallthrough
		default:
			model = provider + "/" + name
			providers[provider] = settings{"npm": "@ai-sdk/openai-compatible", "name": provider, "models": settings{name: settings{"name": name}},
				"options": settings{"baseURL": env[openaiURL], "apiKey": "{env:" + openaiKey + "}"}}
		}
	}
	if model == "" {
		for _, key := range []string{anthropicKey, openaiKey, geminiKey, openrouterKey} {
			if env[key] != "" {
				// Without a model it would take one of its makers', who are not asked for.
				config["disabled_providers"] = []string{"opencode"}
			}
		}
	}
	switch {
	case model != "" && !strings.Contains(model, "/"):
		return Agent{}, errs.E(errs.Invalid, "model: %.100q does not name its provider: opencode wants provider/model", model)
	case model != "":
		config["model"], config["small_model"] = model, model
	case env[openaiURL] != "":
		return Agent{}, errs.E(errs.Invalid, "model: opencode needs one with %s", openaiURL)
	}
	return Agent{
		Command: []string{"opencode", "acp"},
		Env: map[string]string{
			"OPENCODE_CONFIG_CONTENT":       config.text(),
			"OPENCODE_DISABLE_AUTOUPDATE":   "1",
			"OPENCODE_DISABLE_MODELS_FETCH": "1",
			"OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
		},
		AskEnv: map[string]string{"OPENCODE_PERMISSION": `{"edit":"ask","bash":"ask","webfetch":"ask"}`},
	}, nil
}

// apiBase is an address with the path that clients of the provider's own leave to
// themselves.
func apiBase(address, path string) string {
	address = strings.TrimRight(address, "/")
	if strings.HasSuffix(address, path) {
		return address
	}
	return address + path
}

func opencodeProviders(model string, known, trusted map[string]string) []string {
	anthropic, google := serverOf(trusted[anthropicURL], anthropicHost), serverOf(trusted[geminiURL], geminiHost)
	openai := serverOf(trusted[openaiURL], openaiHost)
	provider, _, named := strings.Cut(model, "/")
	switch {
	case provider == "anthropic":
		return []string{anthropic}
	case provider == "google":
		return []string{google}
	case provider == "openrouter":
		return []string{openrouterHost}
	case provider == "opencode":
		return []string{opencodeHost}
	case provider == "openai", model != "" && (!named || trusted[openaiURL] != ""):
		return []string{openai}
	case model != "":
		return nil // a provider that nobody knows the place of
	}
	// The agent takes one of those that it has a key of.
	var all []string
	for _, p := range []struct{ key, host string }{
		{anthropicKey, anthropic}, {openaiKey, openai}, {geminiKey, google}, {openrouterKey, openrouterHost},
	} {
		if known[p.key] != "" {
			all = append(all, p.host)
		}
	}
	if len(all) == 0 { // it asks its makers, who have models that need no key
		return []string{opencodeHost}
	}
	return all
}

// claude defines Claude Code, which reads its key and address itself.
func claude(model string, _ map[string]string) (Agent, error) {
	env := map[string]string{
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"DISABLE_AUTOUPDATER":                      "1",
		"DISABLE_TELEMETRY":                        "1",
		"DISABLE_ERROR_REPORTING":                  "1",
		"IS_SANDBOX":                               "1",
	}
	if model != "" {
		env["ANTHROPIC_MODEL"] = model
	}
	return Agent{Command: []string{"claude-agent-acp"}, Env: env}, nil
}

// codex defines Codex. The provider is one of its settings, with the name of the
// variable that has the key: told so, it does not write the key to a file.
func codex(model string, env map[string]string) (Agent, error) {
	base := env[openaiURL]
	if base == "" {
		base = "https://api.openai.com/v1"
	}
	config := settings{
		"model_provider": "cubby",
		"model_providers": settings{"cubby": settings{
			"name": "OpenAI", "base_url": base, "wire_api": "responses", "env_key": openaiKey,
		}},
		"check_for_update_on_startup": false,
		"analytics":                   settings{"enabled": false},
	}
	if model != "" {
		config["model"] = model
	}
	return Agent{
		Command: []string{"codex-acp"},
		Env:     map[string]string{"CODEX_CONFIG": config.text(), "MODEL_PROVIDER": "cubby", "NO_BROWSER": "1"},
		// The walls are the sandbox's, and Codex's own cannot be built in it.
		AllowMode: "agent-full-access",
		// In its other modes it asks a second model.
		AskMode: "read-only",
	}, nil
}

// gemini defines Gemini CLI.
func gemini(model string, _ map[string]string) (Agent, error) {
	command := []string{"gemini", "--acp"}
	if model != "" {
		command = append(command, "--model", model)
	}
	return Agent{
		Command: command,
		Env:     map[string]string{"GEMINI_CLI_TRUST_WORKSPACE": "true"},
		Files: []File{{
			Path: "~/.gemini/settings.json",
			Content: settings{
				"security": settings{"auth": settings{"selectedType": "gemini-api-key"}},
				"general":  settings{"disableAutoUpdate": true, "enableAutoUpdate": false},
				"privacy":  settings{"usageStatisticsEnabled": false},
			}.text(),
			Keep: true,
		}},
		Auth: "gemini-api-key",
	}, nil
}
