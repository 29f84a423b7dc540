package anthropic

import (
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
)

const (
	minBudget      = 1024 // Anthropic's own
	mostWithBudget = 32000
)

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`
}

// think sets the bound of the answer, which Anthropic demands, and how much of it
// the model may think.
func (out *request) think(r llm.Request) {
	generation := generationOf(r.Model)
	out.MaxTokens = r.MaxTokens
	if out.MaxTokens == 0 {
		out.MaxTokens = generation.answer()
	}
	if r.Effort == "" || r.Effort == llm.EffortNone || out.waitsWithoutThought() {
		return
	}
	if generation.adaptive() {
		// The model finds its own measure. It shows what it thinks when asked.
		out.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		out.OutputConfig = &outputConfig{r.Effort}
		return
	}
	budget := map[llm.Effort]int{llm.EffortLow: 2048, llm.EffortMedium: 8192, llm.EffortHigh: 24576}[r.Effort]
	switch {
	case r.MaxTokens == 0:
		// No model that takes a budget refuses as many.
		out.MaxTokens = min(out.MaxTokens+budget, mostWithBudget)
	case budget >= r.MaxTokens:
		budget = max(minBudget, r.MaxTokens/2)
	}
	out.Thinking = &thinking{Type: "enabled", BudgetTokens: budget}
}

// waitsWithoutThought reports whether the model waits for results of a turn that it
// began without thinking, or as another provider's model: Anthropic does not take
// such a turn with thinking.
func (out *request) waitsWithoutThought() bool {
	n := len(out.Messages)
	if n < 2 || out.Messages[n-1].Content[0].Type != "tool_result" || out.Messages[n-2].Role != llm.Assistant {
		return false
	}
	first := out.Messages[n-2].Content[0].Type
	return first != "thinking" && first != "redacted_thinking"
}

// generation of a model is 4.5 in claude-sonnet-4-5-20250929 and 3.5 in
// claude-3-5-haiku-latest; zero when the name has none.
type generation struct{ major, minor int }

func generationOf(model string) generation {
	var g generation
	found := false
	for _, word := range strings.FieldsFunc(model, func(r rune) bool { return r == '-' || r == '.' || r == '@' || r == '/' }) {
		n, err := strconv.Atoi(word)
		if err != nil || len(word) > 2 {
			if found {
				break
			}
			continue
		}
		if found {
			g.minor = n
			break
		}
		g.major, found = n, true
	}
	return g
}

// adaptive reports whether a model takes an effort in place of a budget.
func (g generation) adaptive() bool { return g.major > 4 || g.major == 4 && g.minor >= 6 }

// answer is the bound of an answer where the request has none: each model refuses
// more than its own.
func (g generation) answer() int {
	switch {
	case g.major == 3 && g.minor == 0:
		return 4096
	case g.major == 3 || g.major == 0:
		return 8192
	}
	return mostWithBudget
}
