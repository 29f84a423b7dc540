package gemini

import (
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
)

type thinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitempty"`
	ThinkingBudget  *int   `json:"thinkingBudget,omitempty"`
	ThinkingLevel   string `json:"thinkingLevel,omitempty"`
}

// thinkingOf says how much a model is to think: the generation 2.5 takes a number of
// tokens, later ones a level. Of models that think anyway their thoughts are asked
// for.
func thinkingOf(model string, effort llm.Effort) *thinkingConfig {
	budgeted := strings.Contains(model, "gemini-2.5")
	levels := !budgeted && strings.Contains(model, "gemini-") && !strings.Contains(model, "gemini-1") && !strings.Contains(model, "gemini-2")
	thinks := (budgeted || levels) && !strings.Contains(model, "image")
	if effort == "" {
		if thinks {
			return &thinkingConfig{IncludeThoughts: true}
		}
		return nil
	}
	out := &thinkingConfig{IncludeThoughts: effort != llm.EffortNone}
	if levels {
		out.ThinkingLevel = string(effort)
		switch {
		case effort == llm.EffortNone: // which is no level
			out.ThinkingLevel = "low"
		case effort == llm.EffortMedium && strings.Contains(model, "gemini-3-pro"): // it has two
			out.ThinkingLevel = "high"
		}
		return out
	}
	budget := map[llm.Effort]int{llm.EffortLow: 1024, llm.EffortMedium: 8192, llm.EffortHigh: 24576}[effort]
	if effort == llm.EffortNone && strings.Contains(model, "pro") {
		budget = 128 // the least of a model that cannot but think
	}
	out.ThinkingBudget = &budget
	return out
}
