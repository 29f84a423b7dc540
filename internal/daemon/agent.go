package daemon

import (
	"cmp"
	"context"
	"net/netip"
	"os"
	"strings"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/agent/items"
	agentsettings "github.com/cubbyhq/cubby/internal/agent/settings"
	"github.com/cubbyhq/cubby/internal/agent/toolset"
	"github.com/cubbyhq/cubby/internal/core/budget"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front/agentapi"
	"github.com/cubbyhq/cubby/internal/journal"
	"github.com/cubbyhq/cubby/internal/llm/providers"
	"github.com/cubbyhq/cubby/internal/store"
	"github.com/cubbyhq/cubby/internal/webhook"
)

// agentParts are the agent and what belongs to it.
type agentParts struct {
	service  *agent.Service
	settings *agentsettings.Settings
	items    *items.Items
	webhooks *webhook.Sender
	journals *journal.Journals
}

// openWebhooks makes the sender of what is posted to webhooks.
func (d *Daemon) openWebhooks() error {
	private := make([]netip.Prefix, len(d.cfg.WebhookNetworks))
	for i, text := range d.cfg.WebhookNetworks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return errs.E(errs.Invalid, "webhook-private-networks: %.60q is no network", text).Hint("as 10.1.0.0/16, or 192.168.1.7/32 for one address")
		}
		private[i] = network
	}
	d.agent.webhooks = webhook.New(webhook.Config{Store: d.store, Private: private, Budget: budget.New(d.memory), Log: d.log})
	return nil
}

// openAgent makes the agent and its settings. It asks no model and starts nothing.
func (d *Daemon) openAgent(dirs dirs, o options) error {
	journals, err := journal.Open(dirs.agent, journal.Limits{PerExec: int64(d.cfg.JournalPerExec), PerSandbox: int64(d.cfg.JournalPerBox)})
	if err != nil {
		return err
	}
	d.closers = append(d.closers, journals)
	environment, err := agentsettings.Environment(o.getenv)
	if err != nil {
		return err
	}
	environment.Model = cmp.Or(d.cfg.AgentModel, environment.Model)
	skills, err := agent.ReadSkills(d.cfg.AgentSkills)
	if err != nil {
		return err
	}
	prices, err := agentPrices(d.cfg.AgentPrices)
	if err != nil {
		return err
	}
	open := providers.New(providers.Config{Prices: prices})
	d.closers = append(d.closers, open)
	asking := agent.Asking(open)
	if o.asking != nil {
		asking = *o.asking
	}
	d.agent.settings = agentsettings.New(agentsettings.Config{Store: d.store, Environment: environment, Ask: asking, Log: d.log})
	if err := d.openWebhooks(); err != nil {
		return err
	}
	work, leave := context.WithCancel(context.Background())
	hands := toolset.New(d.core, toolset.Config{
		Log: d.log, Life: context.Background(), Work: work, Base: func() string { return strings.TrimRight(d.baseURL(), "/") },
		Interface: agentInterface(d.cfg),
	})
	d.agent.journals = journals
	d.agent.service = agent.New(agent.Config{
		Store: d.store, Journals: journals, Log: d.log, Skills: skills, Leave: leave, Admit: d.disks.Admit,
		Webhooks: d.agent.webhooks, Describe: agentapi.DescribeRunEnd,
		Models: agent.NewCatalogue(d.agent.settings, open, d.cfg.AgentMaxTurns, d.cfg.AgentTokenBudget),
		Hands:  agent.NewSandboxes(d.core, hands, d.log),
		Bounds: agent.Bounds{
			Runs: d.cfg.AgentRuns, RunsOfTenant: d.cfg.AgentRunsOf, Threads: d.cfg.AgentThreads, Age: d.cfg.AgentThreadAge, History: d.cfg.HistoryRetention,
			Memory: int64(d.cfg.MemoryBudget) / 2, Crons: d.cfg.AgentCrons, Bytes: int64(d.cfg.HistoryOfTenant),
		},
	})
	d.agent.items = items.New(d.store, store.ItemBounds{Items: d.cfg.StoreItems, Bytes: int64(d.cfg.StoreBytes)}, items.Memory{
		Room: d.agent.service.Room, Budget: budget.New(d.memory),
	})
	return nil
}

// agentPrices reads the operator's prices of models; there are none without a file.
func agentPrices(file string) (providers.Prices, error) {
	if file == "" {
		return providers.Prices{}, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err != nil {
		return nil, errs.E(errs.Invalid, "agent-prices: cannot read %s", file).Because(err)
	}
	prices, err := providers.ParsePrices(text)
	if err != nil {
		return nil, errs.E(errs.Invalid, "agent-prices: %s", errs.Public(err).Message).Because(err)
	}
	return prices, nil
}
