package config

import (
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// validateAgent is Validate of what is about the agent.
func (c Config) validateAgent() error {
	provider, model, named := strings.Cut(c.AgentModel, "/")
	switch {
	case c.AgentModel != "" && (!named || provider == "" || model == ""):
		return errs.E(errs.Invalid, "agent-model: %q is not provider/model", c.AgentModel).Hint("as anthropic/claude-sonnet-4-5 or ollama/qwen3")
	case c.AgentMaxTurns < 1:
		return errs.E(errs.Invalid, "agent-max-turns: %d leaves no turn", c.AgentMaxTurns)
	case min(c.AgentTokenBudget, c.AgentRuns, c.AgentRunsOf, c.AgentThreads, c.AgentCrons, c.StoreItems) < 0 || c.AgentThreadAge < 0:
		return errs.E(errs.Invalid, "agent-token-budget, agent-thread-retention, max-agent-runs, max-agent-runs-per-tenant, max-agent-threads-per-tenant, max-agent-crons-per-tenant and max-store-items-per-tenant are not negative").
			Hint("0 is no bound")
	}
	return nil
}
