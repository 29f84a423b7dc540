package agentapi_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documented returns the programs of a kind in a section of a document.
func documented(t *testing.T, file, section, kind string) []string {
	t.Helper()
	raw, err := os.ReadFile("../../../docs/" + file)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var blocks []string
	for {
		_, rest, found := strings.Cut(text, "```"+kind+"\n")
		if !found {
			return blocks
		}
		block, after, _ := strings.Cut(rest, "```")
		blocks, text = append(blocks, block), after
	}
}

func (r *rig) made() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.calls
	r.calls = nil
	return made
}

// TestDocumentedApprovalIsSafe: what docs/agent.md tells people to send does what it says:
// nothing runs before a person has approved it, and nothing that they rejected.
func TestDocumentedApprovalIsSafe(t *testing.T) {
	blocks := documented(t, "agent.md", "A person decides", "json")
	also := documented(t, "langgraph.md", "A person decides", "json")
	if len(blocks) != 2 || len(also) != 1 {
		t.Fatalf("the documents have %q and %q", blocks, also)
	}
	r := newRig(t, false)
	for _, yes := range []string{blocks[1], also[0]} {
		no := strings.Replace(yes, `"approve"`, `"reject"`, 1)
		if no == yes {
			t.Fatalf("the documented answer approves nothing: %s", yes)
		}
		for _, tt := range []struct {
			answer string
			made   []string
		}{{yes, []string{`execute_terminal{"command":"rm -r logs"}`}}, {no, nil}} {
			thread := r.thread()
			asked := r.do("POST", "/threads/"+thread+"/runs/wait", blocks[0])
			if made := r.made(); asked.status != 200 || !strings.Contains(asked.body, `"__interrupt__":[{`) || len(made) > 0 {
				t.Fatalf("%d %s after %q", asked.status, asked.body, made)
			}
			answered := r.do("POST", "/threads/"+thread+"/runs/wait", tt.answer)
			if diff := cmp.Diff(tt.made, r.made()); answered.status != 200 || diff != "" {
				t.Errorf("%s: %d %s\n%s", tt.answer, answered.status, answered.body, diff)
			}
		}
	}
}

// TestAnswersOverEveryRoute: each route that begins a run takes a person's word, and
// refuses as 422 what is none, without a call being made.
func TestAnswersOverEveryRoute(t *testing.T) {
	r := newRig(t, false)
	for _, route := range []string{"/runs", "/runs/wait", "/runs/stream"} {
		for _, tt := range []struct {
			body string
			want int
		}{
			{`"command":{"resume":"yes"}`, 422},
			{`"command":{"resume":{}}`, 422},
			{`"command":{"resume":[]}`, 422},
			{`"command":{"resume":{"decisions":[]}},"input":{}`, 422},
			{`"command":{"resume":{"decisions":[{"type":"no"}]}},"config":{"configurable":{"interrupt_on":{"look":true}}}`, 422},
			{`"command":{"resume":{"decisions":[{"type":"reject"}]}}`, 200},
			{`"command":{"resume":{"decisions":[{"type":"reject"}]}},"input":{"messages":[{"role":"user","content":"call"}]}`, 200},
			{`"command":{"resume":{"decisions":[{"type":"reject"}]},"goto":[],"update":[]},"input":null`, 200},
			{`"command":{"resume":null},"input":null`, 200},
			{`"input":null`, 200},
			{`"input":{}`, 200},
		} {
			t.Run(route+" "+tt.body, func(t *testing.T) {
				thread := r.thread()
				r.do("POST", "/threads/"+thread+"/runs/wait", says("call", `,"interrupt_before":["look"]`))
				got := r.do("POST", "/threads/"+thread+route, `{"assistant_id":"agent",`+tt.body+`}`)
				if got.status != tt.want {
					t.Errorf("%d %s", got.status, got.body)
				}
				var runs []struct {
					ID string `json:"run_id"`
				}
				r.do("GET", "/threads/"+thread+"/runs", "").into(t, &runs)
				r.do("GET", "/threads/"+thread+"/runs/"+runs[0].ID+"/join", "")
				if made := r.made(); len(made) > 0 {
					t.Errorf("made %q", made)
				}
				want := `"status":"interrupted"`
				if strings.Contains(tt.body, "reject") {
					want = `"status":"idle"`
				}
				if now := r.do("GET", "/threads/"+thread, ""); !strings.Contains(now.body, want) {
					t.Errorf("the thread is %s", now.body)
				}
			})
		}
	}
}

// TestAsksThatHaveNoMeaningAreRefused as 422, and no run is made.
func TestAsksThatHaveNoMeaningAreRefused(t *testing.T) {
	r := newRig(t, false)
	thread := r.thread()
	for _, more := range []string{
		`"interrupt_before":true`, `"interrupt_before":{"look":true}`, `"interrupt_before":["nope"]`, `"interrupt_before":"nope"`, `"interrupt_after":["nope"]`,
		`"config":{"configurable":{"interrupt_on":["look"]}}`, `"config":{"configurable":{"interrupt_on":"look"}}`,
		`"config":{"configurable":{"interrupt_on":{"nope":true}}}`, `"context":{"interrupt_on":{"look":"always"}}`,
	} {
		for _, route := range []string{"/threads/" + thread + "/runs", "/threads/" + thread + "/runs/stream", "/runs/wait", "/runs/stream", "/runs"} {
			if got := r.do("POST", route, says("call", ","+more)); got.status != 422 {
				t.Errorf("%s %s: %d %s", route, more, got.status, got.body)
			}
		}
	}
	if made := r.made(); len(made) > 0 {
		t.Errorf("made %q", made)
	}
}
