package loop

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/llm"
)

// request is what the model is asked now.
func (r *run) request(ctx context.Context) llm.Request {
	q := llm.Request{
		Model: r.Name, Tools: r.Tools.List(), MaxTokens: r.AnswerTokens, Effort: r.Effort, Temperature: r.Temperature,
	}
	var system []string
	if r.System != nil {
		system = append(system, r.System(ctx))
	}
	turns, earlier := r.shown()
	for _, m := range conversation.MessagesOf(r.state) {
		if m.Type == conversation.System {
			system = append(system, conversation.TextOf(m.Content))
		}
	}
	if earlier != "" {
		system = append(system, earlier)
	}
	q.System = strings.Join(system, "\n\n")
	q.Messages = r.translate(turns)
	return q
}

// translate makes messages of a model out of those of the state. Every call of a tool
// gets a result, because providers demand it: one that was not made says so.
func (r *run) translate(list []conversation.Message) []llm.Message {
	var out []llm.Message
	add := func(role llm.Role, parts ...llm.Part) {
		if len(parts) == 0 {
			return
		}
		if n := len(out); n > 0 && out[n-1].Role == role {
			out[n-1].Parts = append(out[n-1].Parts, parts...)
			return
		}
		out = append(out, llm.Message{Role: role, Parts: parts})
	}
	var open []llm.ToolCall // calls that have no result yet
	settle := func() {
		for _, c := range open {
			add(llm.User, llm.ToolResult{CallID: c.ID, Name: c.Name, Parts: []llm.Part{llm.Text{Text: notRun}}, Failed: true})
		}
		open = nil
	}
	for _, m := range list {
		switch m.Type {
		case conversation.Human:
			settle()
			add(llm.User, r.parts(m.Content)...)
		case conversation.AI:
			settle()
			parts := r.parts(m.Content)
			for _, c := range callsOf(m) {
				parts = append(parts, c)
				open = append(open, c)
			}
			add(llm.Assistant, parts...)
		case conversation.Tool:
			name, ours := m.Name, false
			for i, c := range open {
				if c.ID == m.ToolCallID {
					name, ours = c.Name, true
					open = append(open[:i:i], open[i+1:]...)
					break
				}
			}
			if !ours {
				continue // its call is not shown, and providers refuse a result alone
			}
			result := llm.ToolResult{CallID: m.ToolCallID, Name: name, Parts: r.parts(m.Content), Failed: m.Status == conversation.StatusError}
			if r.eyes {
				for _, image := range r.images[m.ToolCallID] {
					result.Parts = append(result.Parts, image)
				}
			}
			add(llm.User, result)
		}
	}
	settle()
	if len(out) > 0 && out[0].Role != llm.User {
		out = append([]llm.Message{{Role: llm.User, Parts: []llm.Part{llm.Text{Text: "(The conversation begins earlier.)"}}}}, out...)
	}
	return out
}

const notRun = "This was not run: the turn was interrupted before."

// callsOf are all calls that a message makes, also those whose arguments are broken: an
// empty object stands for them.
func callsOf(m conversation.Message) []llm.ToolCall {
	var calls []llm.ToolCall
	for _, c := range m.ToolCalls {
		calls = append(calls, llm.ToolCall{ID: c.ID, Name: c.Name, Arguments: string(c.Args), Opaque: c.Extras})
	}
	for _, c := range m.InvalidToolCalls {
		calls = append(calls, llm.ToolCall{ID: c.ID, Name: c.Name, Arguments: "{}"})
	}
	return calls
}

// block is a piece of content, in any of the forms that clients use.
type block struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thought  string          `json:"reasoning"`
	Extras   json.RawMessage `json:"extras"`
	ImageURL json.RawMessage `json:"image_url"` // a URL, or an object with one
	MIME     string          `json:"mime_type"`
	MIMEToo  string          `json:"mimeType"`
	Data     string          `json:"data"`
	Base64   string          `json:"base64"`
	URL      string          `json:"url"`
	Source   *struct {
		Type string `json:"type"`
		MIME string `json:"media_type"`
		Data string `json:"data"`
		URL  string `json:"url"`
	} `json:"source"`
	Metadata struct {
		Name     string `json:"name"`
		Filename string `json:"filename"`
	} `json:"metadata"`
}

// parts reads content.
func (r *run) parts(content json.RawMessage) []llm.Part {
	var text string
	if json.Unmarshal(content, &text) == nil {
		if text == "" {
			return nil
		}
		return []llm.Part{llm.Text{Text: text}}
	}
	var list []json.RawMessage
	if json.Unmarshal(content, &list) != nil {
		return nil
	}
	var parts []llm.Part
	for _, raw := range list {
		if json.Unmarshal(raw, &text) == nil {
			parts = append(parts, llm.Text{Text: text})
			continue
		}
		var b block
		if json.Unmarshal(raw, &b) != nil {
			continue
		}
		if p := r.part(b); p != nil {
			parts = append(parts, p)
		}
	}
	return parts
}

// part reads a block; nil is nothing that a model is shown.
func (r *run) part(b block) llm.Part {
	switch b.Type {
	case "text":
		if b.Text == "" {
			return nil
		}
		return llm.Text{Text: b.Text}
	case "reasoning":
		return llm.Reasoning{Text: b.Thought, Opaque: b.Extras}
	case "image", "image_url":
		i := imageOf(b)
		switch {
		case !r.eyes:
			return llm.Text{Text: "[an image, which this model cannot see]"}
		case len(i.Data) == 0 && i.URL == "":
			return nil
		}
		return i
	case "file":
		data := decode(or(b.Data, b.Base64))
		if len(data) == 0 {
			return nil
		}
		return llm.File{MIME: or(b.MIME, b.MIMEToo, "application/octet-stream"), Name: or(b.Metadata.Filename, b.Metadata.Name), Data: data}
	}
	return nil
}

func imageOf(b block) llm.Image {
	i := llm.Image{MIME: or(b.MIME, b.MIMEToo), Data: decode(or(b.Data, b.Base64)), URL: b.URL}
	if b.Source != nil {
		i = llm.Image{MIME: b.Source.MIME, Data: decode(b.Source.Data), URL: b.Source.URL}
	}
	if len(b.ImageURL) > 0 {
		var object struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(b.ImageURL, &i.URL) != nil && json.Unmarshal(b.ImageURL, &object) == nil {
			i.URL = object.URL
		}
	}
	if head, data, isData := strings.Cut(i.URL, ";base64,"); isData && strings.HasPrefix(head, "data:") {
		i = llm.Image{MIME: strings.TrimPrefix(head, "data:"), Data: decode(data)}
	}
	if i.MIME == "" && len(i.Data) > 0 {
		i.MIME = "image/png"
	}
	return i
}

func decode(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil
	}
	return data
}

func or(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func hasImages(list []llm.Message) bool {
	for _, m := range list {
		for _, p := range m.Parts {
			switch p := p.(type) {
			case llm.Image:
				return true
			case llm.ToolResult:
				for _, inner := range p.Parts {
					if _, ok := inner.(llm.Image); ok {
						return true
					}
				}
			}
		}
	}
	return false
}
