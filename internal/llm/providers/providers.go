// Package providers knows the providers of language models by name: where each is,
// which dialect it speaks, and what its models cost.
//
// It keeps keys and addresses together. A [Source] is used whole or not at all: a key
// goes to the base URL of its own source alone. Unless the operator set it, a base
// URL leads to public addresses over TLS only, which is checked when the connection
// is made and not when the name is looked up.
package providers

import (
	"slices"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/anthropic"
	"github.com/cubbyhq/cubby/internal/llm/gemini"
	"github.com/cubbyhq/cubby/internal/llm/openai"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

// Key is a secret that printing does not show.
type Key = wire.Key

// NewKey returns a key, which is unset when secret is "".
func NewKey(secret string) Key { return wire.NewKey(strings.TrimSpace(secret)) }

// Ref names a model of a provider. Names of models may hold slashes.
type Ref struct{ Provider, Model string }

// Parse reads "provider/model".
func Parse(text string) (Ref, error) {
	name, model, ok := strings.Cut(text, "/")
	if !ok || model == "" {
		return Ref{}, errs.E(errs.Invalid, "a model is named provider/model, as openai/gpt-4.1").Hint("providers are %s, and others that have a base URL", strings.Join(knownNames(), ", "))
	}
	if strings.ContainsFunc(model, func(r rune) bool { return r <= ' ' || r == 0x7f }) || len(model) > 256 {
		return Ref{}, errs.E(errs.Invalid, "that is no name of a model")
	}
	name, err := Name(name)
	return Ref{name, model}, err
}

func (r Ref) String() string { return r.Provider + "/" + r.Model }

// Name returns the name of a provider as cubby writes it: in lower case, and for
// those that have several the first one. It does not need to be known.
func Name(text string) (string, error) {
	name := strings.ToLower(text)
	bad := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' }
	if name == "" || len(name) > 63 || strings.ContainsFunc(name, bad) {
		return "", errs.E(errs.Invalid, "the name of a provider has letters, digits, - and _, at most 63")
	}
	for _, v := range vendors {
		if slices.Contains(v.aliases, name) {
			return v.name, nil
		}
	}
	return name, nil
}

// knownNames lists the providers that need no base URL.
func knownNames() []string {
	var list []string
	for _, v := range vendors {
		list = append(list, v.name)
	}
	return list
}

// Source is a way to a provider, as one party set it: the operator, a tenant or a
// request.
type Source struct {
	Provider string
	BaseURL  string // "": the provider's own
	Key      Key
	// Trusted: the operator set it. Its base URL may lead anywhere.
	Trusted bool
}

// Config is what all providers of a [Set] have in common. Its zero value is good.
type Config struct {
	Idle   time.Duration // how long a provider may be silent; 0: [wire.DefaultIdle]
	Tries  int           // 0: [wire.DefaultTries]
	Pause  time.Duration // before the second try, about; 0: half a second
	Prices Prices        // the operator's, which count more than the list
	// Resolver looks up the names in base URLs; nil: the system's.
	Resolver Resolver
}

// Set opens providers, which share connections. It may be used from any goroutine.
type Set struct {
	config Config
	prices Prices
	open   *transports
	room   *wire.Room // for the answers of all
}

// New returns a set. It connects to nothing.
func New(c Config) *Set {
	return &Set{config: c, prices: listed().with(c.Prices), open: newTransports(c.Resolver), room: wire.NewRoom(wire.DefaultRoom)}
}

// Close closes the connections that are not in use. It does not fail.
func (s *Set) Close() error {
	s.open.close()
	return nil
}

// Open returns the provider of a source. It connects to nothing. The error is
// invalid, or an [llm.Error] that says that there is no key.
func (s *Set) Open(from Source) (llm.Provider, error) {
	name, err := Name(from.Provider)
	if err != nil {
		return nil, err
	}
	v := vendorOf(name)
	base, own, err := v.base(from)
	if err != nil {
		return nil, err
	}
	if v.needsKey && !from.Key.Set() && from.BaseURL == "" {
		return nil, v.keyless()
	}
	if strings.ContainsFunc(from.Key.Reveal(), func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errs.E(errs.Invalid, "the key of %s has a character that no key has", name)
	}
	c := wire.Config{
		Name: name, BaseURL: base, Key: from.Key, Idle: s.config.Idle, Tries: s.config.Tries, Pause: s.config.Pause, Room: s.room,
		HTTP: s.open.client(from.Trusted || !own),
	}
	return &priced{provider: v.new(c), name: name, prices: s.prices}, nil
}

// keyless is the error of a provider without a key.
func (v vendor) keyless() error {
	return &llm.Error{Fault: llm.Denied, Provider: v.name, Message: "no key is set, and the daemon has no " + v.keyEnv}
}

// vendor is a provider that is known by name, or what stands for one that is not.
type vendor struct {
	name     string
	aliases  []string
	url      string // "": it has none
	needsKey bool
	local    bool // its own URL is on the operator's machine
	keyEnv   string
	baseEnv  string
	path     func(path string) string // what it makes of the path of a base URL
	new      func(wire.Config) llm.Provider
}

func compatible(quirks openai.Config) func(wire.Config) llm.Provider {
	return func(c wire.Config) llm.Provider {
		own := quirks
		own.Config = c
		return openai.New(own)
	}
}

var vendors = []vendor{
	{
		name: "openai", url: "https://api.openai.com/v1", needsKey: true, keyEnv: "OPENAI_API_KEY", baseEnv: "OPENAI_BASE_URL",
		path: openaiPath, new: compatible(openai.Config{CompletionTokens: true}),
	},
	{
		name: "anthropic", url: "https://api.anthropic.com", needsKey: true, keyEnv: "ANTHROPIC_API_KEY", baseEnv: "ANTHROPIC_BASE_URL",
		path: anthropicPath, new: func(c wire.Config) llm.Provider { return anthropic.New(c) },
	},
	{
		name: "gemini", aliases: []string{"google", "google_genai"}, url: "https://generativelanguage.googleapis.com/v1beta", needsKey: true,
		keyEnv: "GEMINI_API_KEY", baseEnv: "GOOGLE_GEMINI_BASE_URL",
		path: geminiPath, new: func(c wire.Config) llm.Provider { return gemini.New(c) },
	},
	{
		name: "ollama", url: "http://127.0.0.1:11434/v1", local: true, baseEnv: "OLLAMA_HOST",
		path: ollamaPath, new: compatible(openai.Config{}),
	},
	{
		name: "openrouter", url: "https://openrouter.ai/api/v1", needsKey: true, keyEnv: "OPENROUTER_API_KEY",
		path: openaiPath, new: compatible(openai.Config{OpenRouter: true}),
	},
	{
		name: "groq", url: "https://api.groq.com/openai/v1", needsKey: true, keyEnv: "GROQ_API_KEY",
		path: openaiPath, new: compatible(openai.Config{}),
	},
	{
		name: "mistral", url: "https://api.mistral.ai/v1", needsKey: true, keyEnv: "MISTRAL_API_KEY",
		path: openaiPath, new: compatible(openai.Config{NoStreamOptions: true}),
	},
	{
		name: "deepseek", url: "https://api.deepseek.com/v1", needsKey: true, keyEnv: "DEEPSEEK_API_KEY",
		path: openaiPath, new: compatible(openai.Config{}),
	},
}

func vendorOf(name string) vendor {
	for _, v := range vendors {
		if v.name == name {
			return v
		}
	}
	return vendor{name: name, path: openaiPath, new: compatible(openai.Config{})}
}

// Environ returns the operator's sources, as environment variables give them. Ollama
// is always among them: it needs no key and has a usual address. The error is
// invalid, and names the variable.
func Environ(getenv func(string) string) ([]Source, error) {
	var sources []Source
	for _, v := range vendors {
		s := Source{Provider: v.name, Trusted: true}
		if v.keyEnv != "" {
			s.Key = NewKey(getenv(v.keyEnv))
		}
		if v.baseEnv != "" {
			s.BaseURL = strings.TrimSpace(getenv(v.baseEnv))
		}
		if !s.Key.Set() && s.BaseURL == "" && !v.local {
			continue
		}
		if _, _, err := v.base(s); err != nil {
			return nil, errs.E(errs.Invalid, "%s: %s", v.baseEnv, errs.Public(err).Message)
		}
		sources = append(sources, s)
	}
	return sources, nil
}
