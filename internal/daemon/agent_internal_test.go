package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestAgentPrices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prices.json")
	for text, ok := range map[string]bool{
		`{"openai/gpt-4.1":{"input":1,"output":2}}`: true, `{"gpt":{"input":1,"output":2}}`: false, `{"a/b":{"input":-1,"output":2}}`: false, `[]`: false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		prices, err := agentPrices(file)
		if ok && (err != nil || prices["openai/gpt-4.1"].Output != 2) {
			t.Errorf("%s: %+v, %v", text, prices, err)
		}
		if !ok && (!errors.Is(err, errs.Invalid) || !strings.Contains(errs.Public(err).Message, "agent-prices")) {
			t.Errorf("%s: %v, want invalid", text, err)
		}
	}
	if _, err := agentPrices(file + ".none"); !errors.Is(err, errs.Invalid) {
		t.Errorf("no file: %v", err)
	}
}
