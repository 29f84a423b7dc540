//go:build root && long

package e2e_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/test/harness"
)

// The two lines of the official suite.
const (
	conformance       = "@modelcontextprotocol/conformance/dist/index.js"
	conformanceStable = "conformance-stable/dist/index.js"
)

// Why a scenario of the suite does not apply to cubby.
const (
	needsTool     = "it calls a tool, or reads a resource, with a name that only a server made for the suite has"
	noPrompts     = "cubby has no prompts and declares none"
	noLogging     = "cubby does not log to clients and does not declare it"
	noCompletion  = "cubby completes no arguments and does not declare it"
	noSubscribing = "resources do not change by themselves, and cubby does not declare subscriptions"
)

// inapplicable are the scenarios that need what cubby does not have: how many
// of their checks fail for it, and why. Everything else must pass.
var inapplicable = map[string]struct {
	failed int
	why    string
}{
	"logging-set-level":                             {1, noLogging},
	"tools-call-with-logging":                       {1, noLogging},
	"completion-complete":                           {1, noCompletion},
	"resources-subscribe":                           {1, noSubscribing},
	"resources-unsubscribe":                         {1, noSubscribing},
	"prompts-list":                                  {1, noPrompts},
	"prompts-get-simple":                            {1, noPrompts},
	"prompts-get-with-args":                         {1, noPrompts},
	"prompts-get-embedded-resource":                 {1, noPrompts},
	"prompts-get-with-image":                        {1, noPrompts},
	"caching":                                       {1, "of its six lists one is that of prompts: " + noPrompts},
	"server-stateless":                              {4, "four of its 28 checks call tools of the suite: " + needsTool},
	"tools-call-simple-text":                        {1, needsTool},
	"tools-call-image":                              {1, needsTool},
	"tools-call-audio":                              {1, needsTool},
	"tools-call-embedded-resource":                  {1, needsTool},
	"tools-call-mixed-content":                      {1, needsTool},
	"tools-call-error":                              {1, needsTool},
	"tools-call-with-progress":                      {1, needsTool},
	"tools-call-sampling":                           {1, needsTool},
	"tools-call-elicitation":                        {1, needsTool},
	"json-schema-2020-12":                           {1, needsTool},
	"elicitation-sep1034-defaults":                  {1, needsTool},
	"elicitation-sep1330-enums":                     {1, needsTool},
	"resources-read-text":                           {1, needsTool},
	"resources-read-binary":                         {1, needsTool},
	"resources-templates-read":                      {1, needsTool},
	"http-custom-header-server-validation":          {5, needsTool},
	"input-required-result-basic-elicitation":       {1, needsTool},
	"input-required-result-basic-sampling":          {1, needsTool},
	"input-required-result-basic-list-roots":        {1, needsTool},
	"input-required-result-request-state":           {1, needsTool},
	"input-required-result-multiple-input-requests": {1, needsTool},
	"input-required-result-multi-round":             {1, needsTool},
	"input-required-result-non-tool-request":        {1, needsTool},
	"input-required-result-result-type":             {1, needsTool},
	"input-required-result-tampered-state":          {1, needsTool},
	"input-required-result-capability-check":        {1, needsTool},
}

// scenarioLine is one of the suite's summary.
var scenarioLine = regexp.MustCompile(`(?m)^[✓✗] ([a-z0-9-]+): (\d+) passed, (\d+) failed`)

// TestConformance runs the whole official suite, both lines of it and every
// revision that they know.
func TestConformance(t *testing.T) {
	i := installInspector(t) // not beside another
	t.Parallel()
	h := newReal(t, harness.Options{})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line, revision string
		least          int // scenarios
	}{
		{conformance, "2026-07-28", 38}, {conformance, "2025-11-25", 30}, {conformance, "2025-06-18", 25}, {conformance, "2025-03-26", 1},
		{conformanceStable, "2025-11-25", 30}, {conformanceStable, "2025-06-18", 25},
	} {
		t.Run(fmt.Sprint(strings.Split(tt.line, "/dist")[0], "/", tt.revision), func(t *testing.T) {
			out, _ := i.run(t, nil, tt.line, "server", "--url", url+"/mcp", "--suite", "all", "--spec-version", tt.revision)
			ran := scenarioLine.FindAllStringSubmatch(out, -1)
			if len(ran) < tt.least {
				t.Fatalf("only %d scenarios ran:\n%s", len(ran), out)
			}
			for _, m := range ran {
				failed, err := strconv.Atoi(m[3])
				if err != nil {
					t.Fatal(err)
				}
				if want := inapplicable[m[1]]; failed != want.failed {
					t.Errorf("%s: %d checks failed, want %d (%s)\n%s", m[1], failed, want.failed, want.why, out)
				}
			}
		})
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
