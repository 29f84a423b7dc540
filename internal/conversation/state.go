package conversation

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Entry is a message of a state. Place is where it is among all messages of the
// thread, 0 while it is not stored.
type Entry struct {
	Place   int64
	Message Message
}

// Add returns a state with messages added: one with an id that is there takes that
// one's place, one of the type Remove takes it away, and others come at the end, with
// an id if they have none. The state itself stays as it is. Invalid when a message is
// to be removed that is not there.
func Add(state []Entry, more []Message) ([]Entry, error) {
	out := slices.Clone(state)
	places := make(map[string]int, len(out))
	for i, e := range out {
		places[e.Message.ID] = i
	}
	gone := map[int]bool{}
	for _, m := range more {
		if m.Type == Remove {
			if m.ID == RemoveAll {
				for i := range out {
					gone[i] = true
				}
				clear(places)
				continue
			}
			i, there := places[m.ID]
			if !there {
				return nil, errs.E(errs.Invalid, "there is no message with the id %.80q to remove", m.ID)
			}
			gone[i] = true
			delete(places, m.ID)
			continue
		}
		if m.ID == "" {
			m.ID = uuid.NewString()
		}
		if i, there := places[m.ID]; there {
			out[i] = Entry{Message: m}
			continue
		}
		places[m.ID] = len(out)
		out = append(out, Entry{Message: m})
	}
	if len(gone) == 0 {
		return out, nil
	}
	kept := out[:0]
	for i, e := range out {
		if !gone[i] {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// MessagesOf returns the messages of a state.
func MessagesOf(state []Entry) []Message {
	list := make([]Message, len(state))
	for i, e := range state {
		list[i] = e.Message
	}
	return list
}

// Given reports whether raw is there and not null.
func Given(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && !bytes.Equal(raw, []byte("null"))
}

// is reports whether a JSON value begins with a byte, which tells what it is: to try and
// fail would read all of it, and a message with an image is long.
func is(raw json.RawMessage, first byte) bool {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) > 0 && raw[0] == first
}

// ParseInput reads the messages of a run's input or of a state's new values:
// {"messages":…}, of which other keys are ignored. What has none is no input.
func ParseInput(raw json.RawMessage) ([]Message, error) {
	if !Given(raw) {
		return nil, nil
	}
	var in struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, errs.E(errs.Invalid, "the input is no object").Hint(`it is {"messages":[{"role":"user","content":"…"}]}`)
	}
	return ParseMessages(in.Messages)
}

// ParseMessages reads messages as LangChain takes them: a list or a single one, each
// an object, a pair of a type and a text, or a text, which is a human's.
func ParseMessages(raw json.RawMessage) ([]Message, error) {
	if !Given(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if !is(raw, '[') || json.Unmarshal(raw, &list) != nil || isPair(list) {
		list = []json.RawMessage{raw}
	}
	messages := make([]Message, len(list))
	for i, one := range list {
		m, err := parseMessage(one)
		if err != nil {
			return nil, errs.E(errs.Invalid, "messages[%d]: %s", i, errs.Public(err).Message).Hint("a message is an object with a type or role, and content")
		}
		messages[i] = m
	}
	return messages, nil
}

func isPair(list []json.RawMessage) bool {
	if len(list) != 2 {
		return false
	}
	var name, text string
	return is(list[0], '"') && is(list[1], '"') &&
		json.Unmarshal(list[0], &name) == nil && json.Unmarshal(list[1], &text) == nil && typeNames[name] != ""
}

func parseMessage(raw json.RawMessage) (Message, error) {
	var text string
	if is(raw, '"') {
		return Message{Type: Human, Content: raw}, nil
	}
	var pair []json.RawMessage
	if is(raw, '[') && json.Unmarshal(raw, &pair) == nil && isPair(pair) {
		_ = json.Unmarshal(pair[0], &text) // isPair has read it
		return Message{Type: typeNames[text], Content: pair[1]}, nil
	}
	var m Message
	if err := json.Unmarshal(raw, &m); err != nil {
		if errs.KindOf(err) == errs.Invalid {
			return m, err
		}
		return m, errs.E(errs.Invalid, "malformed").Because(err)
	}
	if m.Type != Remove {
		if err := checkContent(m.Content); err != nil {
			return m, err
		}
	}
	if m.Type == Remove && m.ID == "" {
		return m, errs.E(errs.Invalid, "it removes a message and has no id")
	}
	if m.Type == Tool && m.ToolCallID == "" {
		return m, errs.E(errs.Invalid, "a tool's message has no tool_call_id")
	}
	if m.Type == Tool && m.Status == "" {
		m.Status = StatusSuccess
	}
	for _, c := range m.ToolCalls {
		var args map[string]json.RawMessage
		if c.ID == "" || c.Name == "" || json.Unmarshal(c.Args, &args) != nil {
			return m, errs.E(errs.Invalid, "a tool call needs an id, a name and args, which are an object")
		}
	}
	return m, nil
}

// checkContent makes sure that content is a text or a list of blocks.
func checkContent(raw json.RawMessage) error {
	if !Given(raw) {
		return nil
	}
	if is(raw, '"') {
		return nil
	}
	var blocks []json.RawMessage
	if !is(raw, '[') || json.Unmarshal(raw, &blocks) != nil {
		return errs.E(errs.Invalid, "content is neither a text nor a list of blocks")
	}
	for _, b := range blocks {
		var block struct {
			Type string `json:"type"`
		}
		if is(b, '"') {
			continue
		}
		if json.Unmarshal(b, &block) != nil || block.Type == "" {
			return errs.E(errs.Invalid, "a block of the content has no type")
		}
	}
	return nil
}

// TextOf is the text of a message's content: the string, or the texts of its blocks.
func TextOf(content json.RawMessage) string {
	var text string
	if is(content, '"') && json.Unmarshal(content, &text) == nil {
		return text
	}
	var blocks []json.RawMessage
	if !is(content, '[') || json.Unmarshal(content, &blocks) != nil {
		return ""
	}
	var all strings.Builder
	for _, raw := range blocks {
		var b struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if is(raw, '"') && json.Unmarshal(raw, &text) == nil {
			all.WriteString(text)
		} else if json.Unmarshal(raw, &b) == nil && b.Type == "text" {
			all.WriteString(b.Text)
		}
	}
	return all.String()
}

// Text is content that is a text.
func Text(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings always can be
	}
	return raw
}

// Number is a number as metadata have it.
func Number(n int) json.RawMessage { return json.RawMessage(strconv.Itoa(n)) }
