//go:build root

package langgraph_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/llm/llmtest"
)

// TestLangGraphOracle sends the same requests to LangGraph's own server and to a
// daemon, with the same model behind both, and compares what they answer. What differs
// is listed, and a line of the list that no answer needs fails the test.
func TestLangGraphOracle(t *testing.T) {
	t.Parallel()
	packages := install(t, "node")
	ours := daemon(t, packages, false) + "/agent"
	oracle := install(t, "oracle", "oracle/graph.mjs", "oracle/server.mjs", "script.json")
	cmd := exec.Command("node", "server.mjs")
	cmd.Dir = oracle
	cmd.Env = append(cmd.Environ(), "LOG_LEVEL=error", "TMPDIR="+oracle)
	theirs := llmtest.StartServer(t, cmd, "listening ")
	var mu sync.Mutex
	used := map[int]bool{} // guarded by mu
	t.Run("scenarios", func(t *testing.T) {
		for _, s := range scenarios {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel() // the other server takes its time
				for _, d := range compare(t, s.name, s.do, theirs, ours) {
					i := slices.IndexFunc(slices.Concat(known, sometimes), func(k difference) bool { return k.where.MatchString(d.path) })
					if i < 0 {
						t.Errorf("%s: theirs %s, ours %s", d.path, d.theirs, d.ours)
						continue
					}
					mu.Lock()
					used[i] = true
					mu.Unlock()
				}
			})
		}
	})
	for i, k := range known {
		if !used[i] && !t.Failed() {
			t.Errorf("nothing differs any more as %s: %s", k.where, k.why)
		}
	}
}

// compare does a scenario with both servers.
func compare(t *testing.T, name string, do func(*server), theirs, ours string) []found {
	a, b := &server{t: t, url: theirs}, &server{t: t, url: ours}
	do(a)
	do(b)
	c := &comparison{scenario: name, same: map[string]string{}, back: map[string]string{}}
	for i := range max(len(a.got), len(b.got)) {
		c.answers(at(a.got, i), at(b.got, i))
	}
	return c.found
}

func at(list []result, i int) result {
	if i < len(list) {
		return list[i]
	}
	return result{name: "(none)"}
}

// difference is one that is known, and why it is one.
type difference struct {
	where *regexp.Regexp
	why   string
}

// langgraph is a server that is asked.
type server struct {
	t   *testing.T
	url string
	got []result
}

// result is an answer: a status, and JSON or a list of events.
type result struct {
	name    string
	status  int
	kind    string
	body    any
	streams map[string][]any // the data of events, by their names
	order   []string         // of the first event of each name, and whether it is last
}

// raw makes a request and keeps nothing.
func (s *server) raw(method, path string, body any, headers ...string) (*http.Response, []byte) {
	s.t.Helper()
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Timeout: time.Minute}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, text
}

// do makes a request whose answer is compared, and returns it decoded.
func (s *server) do(name, method, path string, body any, headers ...string) any {
	s.t.Helper()
	res, text := s.raw(method, path, body, headers...)
	r := result{name: name, status: res.StatusCode, streams: map[string][]any{}}
	r.kind, _, _ = strings.Cut(res.Header.Get("Content-Type"), ";")
	switch {
	case r.kind == "text/event-stream":
		for block := range strings.SplitSeq(string(text), "\n\n") {
			var name string
			for line := range strings.SplitSeq(block, "\n") {
				field, value, _ := strings.Cut(line, ": ")
				switch field {
				case "event":
					name = value
				case "data":
					var v any
					if err := json.Unmarshal([]byte(value), &v); err != nil {
						s.t.Fatalf("%s: %v", value, err)
					}
					if v, _ := v.(object); v["name"] == "RunnableLambda" {
						continue // a step within theirs that decides what comes next; here nothing runs for that
					}
					if v, _ := v.(object); v["event"] == "on_chain_stream" {
						continue // the servers in Python have what a node gave in one, which this one in JavaScript has not
					}
					if r.streams[name] == nil {
						r.order = append(r.order, name)
					}
					r.streams[name] = append(r.streams[name], v)
				}
			}
		}
	case res.StatusCode < 300 && len(bytes.TrimSpace(text)) > 0:
		if err := json.Unmarshal(text, &r.body); err != nil {
			s.t.Fatalf("%s %s: %s: %v", method, path, text, err)
		}
		r.kind = "" // of a wait it is text there
	default:
		r.kind = ""
	}
	s.got = append(s.got, r)
	return r.body
}

func (s *server) thread() string {
	s.t.Helper()
	_, text := s.raw("POST", "/threads", map[string]any{})
	var made struct {
		ID string `json:"thread_id"`
	}
	if err := json.Unmarshal(text, &made); err != nil {
		s.t.Fatal(err)
	}
	return made.ID
}

type object = map[string]any

func run(prompt string, more ...object) object {
	o := object{"assistant_id": "agent", "input": object{"messages": []any{object{"type": "human", "content": prompt, "id": "h-" + prompt}}}}
	for _, m := range more {
		for k, v := range m {
			o[k] = v
		}
	}
	return o
}

// comparison finds what differs between two answers. Ids differ always, but as one
// stands for another one in one place it does in all.
type comparison struct {
	scenario string
	same     map[string]string // our id by theirs
	back     map[string]string
	found    []found
}

type found struct{ path, theirs, ours string }

func (c *comparison) differ(path string, theirs, ours any) {
	short := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%.300s", text)
	}
	c.found = append(c.found, found{c.scenario + ": " + path, short(theirs), short(ours)})
}

func (c *comparison) answers(theirs, ours result) {
	path := theirs.name
	if theirs.name != ours.name || theirs.status != ours.status || theirs.kind != ours.kind {
		c.differ(path+" status", object{theirs.name: theirs.status, "type": theirs.kind}, object{ours.name: ours.status, "type": ours.kind})
		return
	}
	c.values(path, theirs.body, ours.body)
	// How events of different names lie between each other depends on how busy the
	// other server is; what is first is first.
	names := map[string]bool{}
	for _, order := range [][]string{theirs.order, ours.order} {
		for _, name := range order {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(keys(names)) {
		a, b := theirs.streams[name], ours.streams[name]
		if len(a) != len(b) {
			c.differ(path+" "+name+" count", len(a), len(b))
			continue
		}
		for i := range a {
			c.values(path+" "+name, a[i], b[i])
		}
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (c *comparison) values(path string, theirs, ours any) {
	switch a := theirs.(type) {
	case object:
		b, ok := ours.(object)
		if !ok {
			c.differ(path, theirs, ours)
			return
		}
		all := map[string]bool{}
		for k := range a {
			all[c.translate(k)] = true
		}
		for k := range b {
			all[k] = true
		}
		for _, k := range slices.Sorted(keys(all)) {
			theirKey := k
			for from := range a {
				if c.translate(from) == k {
					theirKey = from
				}
			}
			va, ina := a[theirKey]
			vb, inb := b[k]
			place := path + "." + idPattern.ReplaceAllString(k, "ID")
			switch {
			case !ina:
				c.differ(place, "(not there)", vb)
			case !inb:
				c.differ(place, va, "(not there)")
			default:
				c.values(place, va, vb)
			}
		}
	case []any:
		b, ok := ours.([]any)
		if !ok || len(a) != len(b) {
			c.differ(path+"[]", theirs, ours)
			return
		}
		for i := range a {
			c.values(path+"[]", a[i], b[i])
		}
	case string:
		b, ok := ours.(string)
		if !ok || !c.texts(a, b) {
			c.differ(path, theirs, ours)
		}
	default:
		if theirs != ours {
			c.differ(path, theirs, ours)
		}
	}
}

var (
	idPattern   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b`)
	timePattern = regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:.]+Z$`)
)

// translate returns a text of theirs with our ids.
func (c *comparison) translate(text string) string {
	text = strings.Replace(text, "run-", "run--", 1)
	return idPattern.ReplaceAllStringFunc(text, func(id string) string {
		if our, ok := c.same[id]; ok {
			return our
		}
		return id
	})
}

// texts compares two, and learns which ids stand for each other.
func (c *comparison) texts(theirs, ours string) bool {
	if timePattern.MatchString(theirs) && timePattern.MatchString(ours) {
		return true
	}
	theirs, ours = strings.ReplaceAll(theirs, "run--", "run-"), strings.ReplaceAll(ours, "run--", "run-")
	if idPattern.ReplaceAllString(theirs, "ID") != idPattern.ReplaceAllString(ours, "ID") {
		return false
	}
	a, b := idPattern.FindAllString(theirs, -1), idPattern.FindAllString(ours, -1)
	for i := range a {
		our, known := c.same[a[i]]
		their, back := c.back[b[i]]
		if known != back || known && (our != b[i] || their != a[i]) {
			return false
		}
		c.same[a[i]], c.back[b[i]] = b[i], a[i]
	}
	return true
}
