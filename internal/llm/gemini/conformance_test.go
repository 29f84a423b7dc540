package gemini_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/gemini"
	"github.com/cubbyhq/cubby/internal/llm/llmtest"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dialect() llmtest.Dialect {
	return llmtest.Dialect{
		Name: "gemini", Fake: llmtest.Gemini{}, Images: true, Signed: true,
		New: func(c wire.Config) llm.Provider { return gemini.New(c) },
	}
}

func TestConformance(t *testing.T) { llmtest.Run(t, dialect()) }

func BenchmarkStream(b *testing.B) { llmtest.Bench(b, dialect()) }
