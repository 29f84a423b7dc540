//go:build root

package agent_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// model is a server of a language model that speaks OpenAI's chat completions. It has
// no mind of its own: a test says how it answers.
type model struct {
	*httptest.Server

	mu   sync.Mutex
	seen []string // the keys of all requests; guarded by mu
}

// asked is a request to a model.
type asked struct {
	Messages []said `json:"messages"`
	// Body is all of it.
	Body []byte `json:"-"`
}

// said is a message as a model is shown it.
type said struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// text is the text of a message, the last one where it has several.
func (s said) text() string {
	var text string
	if json.Unmarshal(s.Content, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(s.Content, &parts) // what is no list has no text
	for _, p := range parts {
		if p.Text != "" {
			text = p.Text
		}
	}
	return text
}

// turn is what the user said last, and what tools have given since.
func (a asked) turn() (user string, results []string) {
	for _, m := range a.Messages {
		switch m.Role {
		case "user":
			user, results = m.text(), nil
		case "tool":
			results = append(results, m.text())
		}
	}
	return user, results
}

// newModel starts a model that answers so.
func newModel(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, a asked)) *model {
	t.Helper()
	m := &model{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var a asked
		var err error
		if a.Body, err = io.ReadAll(r.Body); err == nil && len(a.Body) > 0 {
			err = json.Unmarshal(a.Body, &a)
		}
		if err != nil && r.Context().Err() == nil {
			t.Errorf("the model is asked %.200q: %v", a.Body, err)
		}
		m.mu.Lock()
		m.seen = append(m.seen, r.Header.Get("Authorization"))
		m.mu.Unlock()
		answer(w, r, a)
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

// keys are those of the requests so far.
func (m *model) keys() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.seen...)
}

// environment has a daemon ask the model with a key.
func (m *model) environment(key string) []string {
	return []string{"OPENAI_BASE_URL=" + m.URL + "/v1", "OPENAI_API_KEY=" + key, "CUBBY_AGENT_MODEL=openai/scripted"}
}

// object is one of JSON.
type object = map[string]any

// encode is for what tests make themselves.
func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// send writes a piece of an answer.
func send(w http.ResponseWriter, delta object, finish any) {
	w.Header().Set("Content-Type", "text/event-stream")
	raw := encode(object{
		"object": "chat.completion.chunk", "model": "scripted", "choices": []object{{"index": 0, "delta": delta, "finish_reason": finish}},
	})
	_, _ = fmt.Fprintf(w, "data: %s\n\n", raw) // who has left reads nothing
}

func done(w http.ResponseWriter) { _, _ = io.WriteString(w, "data: [DONE]\n\n") }

// say answers with a text.
func say(w http.ResponseWriter, text string) {
	send(w, object{"role": "assistant", "content": text}, nil)
	send(w, object{}, "stop")
	done(w)
}

// use answers with the call of a tool. Arguments are JSON.
func use(w http.ResponseWriter, tool, arguments string) {
	send(w, callOf(0, tool, arguments), nil)
	send(w, object{}, "tool_calls")
	done(w)
}

// callOf is the piece of an answer that has a whole call.
func callOf(index int, tool, arguments string) object {
	return object{"tool_calls": []object{{
		"index": index, "id": fmt.Sprintf("call_%s_%d", tool, index), "type": "function", "function": object{"name": tool, "arguments": arguments},
	}}}
}

// obey is a model that does what it reads: each line "DO tool {…}" of the user or of
// what a tool has given is a call, made in their order; then it repeats what the last
// one gave. Of RECALL it repeats what the user said first. A last line "SAY …" of the user is repeated at once.
func obey(w http.ResponseWriter, _ *http.Request, a asked) {
	user, results := a.turn()
	if text, ok := strings.CutPrefix(user[strings.LastIndex(user, "\n")+1:], "SAY "); ok {
		say(w, text)
		return
	}
	if strings.HasSuffix(user, "RECALL") {
		say(w, a.Messages[1].text()) // the first one is the system's
		return
	}
	todo := orders(user)
	for _, r := range results {
		todo = append(todo, orders(textsOf(r))...)
	}
	if n := len(results); n < len(todo) {
		tool, arguments, _ := strings.Cut(todo[n], " ")
		use(w, tool, arguments)
		return
	}
	last := "nothing to do"
	if len(results) > 0 {
		last = results[len(results)-1]
	}
	say(w, last)
}

// orders are the lines of a text that are to be obeyed.
func orders(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		if order, ok := strings.CutPrefix(strings.TrimSpace(line), "DO "); ok {
			list = append(list, order)
		}
	}
	return list
}

// textsOf are the texts in a result, which is JSON.
func textsOf(result string) string {
	var fields map[string]any
	if json.Unmarshal([]byte(result), &fields) != nil {
		return result
	}
	var all []string
	for _, v := range fields {
		if text, ok := v.(string); ok {
			all = append(all, text)
		}
	}
	return strings.Join(all, "\n")
}
