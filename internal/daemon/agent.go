package daemon

import (
	"context"
	"os"
	"strings"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/agent/toolset"
	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/llm/providers"
)

// openAgent makes the agent and its settings. It asks no model and starts nothing.
func (d *Daemon) openAgent(dirs dirs) error {
	journals, err := journal.Open(dirs.agent, journal.Limits{PerExec: int64(d.cfg.JournalPerExec), PerSandbox: int64(d.cfg.JournalPerBox)})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, journals)
	environment, err := agentEnvironment(d.cfg, os.Getenv)
	if err != nil {
		return err
	}
	skills, err := agent.ReadSkills(d.cfg.AgentSkills)
	if err != nil {
		return err
	}
	open := providers.New(providers.Config{})
	d.agent.settings = settings.New(settings.Config{Store: d.store, Environment: environment, Ask: agent.Asking(open), Log: d.log})
	work, leave := context.WithCancel(context.Background())
	hands := toolset.New(d.core, toolset.Config{Log: d.log, Life: context.Background(), Work: work, Base: strings.TrimRight(d.baseURL(), "/")})
	d.agent.journals = journals
	d.agent.service = agent.New(agent.Config{
		Store: d.store, Journals: journals, Log: d.log, Skills: skills, Leave: leave,
		Models: agent.NewCatalogue(d.agent.settings, open, d.cfg.AgentMaxTurns, d.cfg.AgentTokenBudget),
		Hands:  agent.NewSandboxes(d.core, hands, d.log),
		Bounds: agent.Bounds{
			Runs: d.cfg.AgentRuns, RunsOfTenant: d.cfg.AgentRunsOf, Threads: d.cfg.AgentThreads, Age: d.cfg.AgentThreadAge, History: d.cfg.HistoryRetention,
		},
	})
	return nil
}

// agentEnvironment is what holds for the agent where nobody has set anything: the
// variables of providers, and the operator's model.
func agentEnvironment(c config.Config, getenv func(string) string) (settings.Document, error) {
	sources, err := providers.Environ(getenv)
	if err != nil {
		return settings.Document{}, err
	}
	d := settings.Document{Model: c.AgentModel, Providers: map[string]settings.Provider{}}
	for _, s := range sources {
		d.Providers[s.Provider] = settings.Provider{BaseURL: s.BaseURL, Key: s.Key.Reveal()}
	}
	return d, nil
}
