package agentapi

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// sent is the fields that LangGraph's SDKs for JavaScript (1.12) and Python send to an
// endpoint, and those that its own server takes.
var sent = []struct {
	endpoint string
	body     any
	refused  cannot
	fields   []string
}{
	{"POST …/runs", RunCreate{}, cannotInRuns, []string{
		"assistant_id", "input", "command", "config", "context", "metadata", "stream_mode", "stream_subgraphs", "stream_resumable", "feedback_keys",
		"interrupt_before", "interrupt_after", "checkpoint", "checkpoint_id", "webhook", "multitask_strategy", "on_completion", "on_disconnect",
		"after_seconds", "if_not_exists", "checkpoint_during", "durability", "langsmith_tracer", "strict_resume",
	}},
	{"config", RunConfig{}, nil, []string{"tags", "recursion_limit", "configurable", "metadata", "run_name", "max_concurrency", "callbacks"}},
	{"checkpoint", CheckpointChoice{}, nil, []string{"checkpoint_id", "checkpoint_ns", "checkpoint_map", "thread_id", "configurable"}},
	{"POST /runs/cancel", RunsCancel{}, nil, []string{"thread_id", "run_ids", "status"}},
	{"POST /threads", ThreadCreate{}, cannotInThreads, []string{"thread_id", "metadata", "if_exists", "supersteps", "ttl"}},
	{"supersteps", SuperstepUpdate{}, nil, []string{"values", "as_node", "command"}},
	{"PATCH /threads/{id}", threadPatch{}, cannotInThreads, []string{"metadata", "ttl"}},
	{"POST /threads/search", threadSearch{}, cannotInSearch, []string{
		"metadata", "ids", "status", "values", "limit", "offset", "sort_by", "sort_order", "select", "extract",
	}},
	{"POST /threads/count", threadSearch{}, cannotInSearch, []string{"metadata", "status", "values"}},
	{"POST /threads/prune", threadsPrune{}, nil, []string{"thread_ids", "strategy"}},
	{"POST …/state", StateUpdate{}, nil, []string{"values", "as_node", "checkpoint", "checkpoint_id"}},
	{"PATCH …/state", statePatch{}, nil, []string{"metadata", "checkpoint"}},
	{"POST …/state/checkpoint", stateAt{}, nil, []string{"checkpoint", "subgraphs"}},
	{"POST …/history", historySearch{}, nil, []string{"limit", "before", "metadata", "checkpoint"}},
}

// TestNoFieldIsIgnoredSilently: each field that an official client sends is applied, or
// refused with 422, or it stands among those that make no difference, with the reason in
// docs/compatibility.md.
func TestNoFieldIsIgnoredSilently(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, doc, _ := strings.Cut(string(raw), "## LangGraph\n")
	documented := func(field string) bool { return strings.Contains(doc, "`"+field+"`") }
	for _, s := range sent {
		known := jsonNames(reflect.TypeOf(s.body))
		for _, field := range s.fields {
			_, refused := s.refused[field]
			ignored := slices.Contains(makesNoDifference, field)
			switch {
			case refused && slices.Contains(known, field):
				t.Errorf("%s: %s is refused and applied", s.endpoint, field)
			case (refused || ignored) && !documented(field):
				t.Errorf("%s: docs/compatibility.md does not say why %s is not applied", s.endpoint, field)
			case !refused && !ignored && !slices.Contains(known, field):
				t.Errorf("%s: %s is ignored", s.endpoint, field)
			}
		}
		for field := range s.refused {
			if !slices.Contains(s.fields, field) {
				t.Errorf("%s: nobody sends %s", s.endpoint, field)
			}
			err := s.refused.check([]byte(`{"` + field + `":1}`))
			if own, ok := err.(*answered); !ok || own.status != 422 { //nolint:errorlint // it is made there
				t.Errorf("%s: %s is refused with %v", s.endpoint, field, err)
			}
		}
	}
}

// jsonNames are the fields that a type has in JSON.
func jsonNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			names = append(names, jsonNames(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
