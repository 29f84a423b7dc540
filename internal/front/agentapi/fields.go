package agentapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// cannot is fields of the platform's requests that would make a difference there and
// cannot here, and why: to ignore them would be a wrong answer.
type cannot map[string]string

var (
	cannotInRuns = cannot{
		"feedback_keys":    "no LangSmith is connected",
		"langsmith_tracer": "no LangSmith is connected",
	}
	cannotInThreads = cannot{"ttl": "threads are kept as agent-thread-retention says"}
	cannotInSearch  = cannot{"values": "threads cannot be searched by their messages: search by metadata"}
)

// makesNoDifference is fields of the platform's requests that are ignored, because what
// they ask for is always or never so. docs/compatibility.md says which and why.
var makesNoDifference = []string{
	"stream_subgraphs", "stream_resumable", "durability", "checkpoint_during", "strict_resume", "subgraphs", "run_name", "max_concurrency", "callbacks",
	"checkpoint_map", "thread_id",
}

// check refuses a request that has one of the fields.
func (c cannot) check(data []byte) error {
	var got object
	_ = json.Unmarshal(data, &got) // what is no object is refused by who decodes it
	for _, field := range slices.Sorted(maps.Keys(c)) {
		switch string(got[field]) {
		case "", "null", "[]", "{}", `""`, "false":
		default:
			return unprocessable(errs.E(errs.Invalid, "%s: %s", field, c[field]))
		}
	}
	return nil
}

// maxExtract bounds the paths of a search.
const maxExtract = 10

// path leads into JSON: names behind dots, and places in brackets, from the end when
// they are negative.
type path []any // of string and int

// UnmarshalJSON reads values.messages[-1].content.
func (p *path) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*p = nil
	for step := range strings.SplitSeq(text, ".") {
		name, places, in := strings.Cut(step, "[")
		if name == "" || in && places == "" {
			return errs.E(errs.Invalid, "extract: %.80q is not a path as values.messages[-1].content", text)
		}
		*p = append(*p, name)
		for places != "" {
			place, rest, closed := strings.Cut(places, "]")
			n, err := strconv.Atoi(place)
			if err != nil || !closed || rest != "" && rest[0] != '[' {
				return errs.E(errs.Invalid, "extract: %.80q is not a path as values.messages[-1].content", text)
			}
			*p = append(*p, n)
			places = strings.TrimPrefix(rest, "[")
		}
	}
	return nil
}

// in is what the path leads to; null: nothing.
func (p path) in(root object) json.RawMessage {
	at := jsonOf(root)
	for _, step := range p {
		switch step := step.(type) {
		case string:
			var fields object
			if json.Unmarshal(at, &fields) != nil {
				return json.RawMessage("null")
			}
			at = fields[step]
		case int:
			var list []json.RawMessage
			if json.Unmarshal(at, &list) != nil {
				return json.RawMessage("null")
			}
			if step < 0 {
				step += len(list)
			}
			if step < 0 || step >= len(list) {
				return json.RawMessage("null")
			}
			at = list[step]
		}
		if at == nil {
			return json.RawMessage("null")
		}
	}
	return at
}
