package gemini

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

type request struct {
	SystemInstruction *content   `json:"systemInstruction,omitempty"`
	Contents          []content  `json:"contents"`
	Tools             []tools    `json:"tools,omitempty"`
	GenerationConfig  generation `json:"generationConfig"`
}

type content struct {
	Role  string  `json:"role,omitempty"`
	Parts []*part `json:"parts"`
}

type part struct {
	Text             *string           `json:"text,omitempty"`
	Thought          bool              `json:"thought,omitempty"`
	ThoughtSignature string            `json:"thoughtSignature,omitempty"`
	InlineData       *blob             `json:"inlineData,omitempty"`
	FileData         *fileData         `json:"fileData,omitempty"`
	FunctionCall     *functionCall     `json:"functionCall,omitempty"`
	FunctionResponse *functionResponse `json:"functionResponse,omitempty"`
}

type blob struct {
	MIMEType string `json:"mimeType"`
	Data     string `json:"data"`
}

type fileData struct {
	MIMEType string `json:"mimeType,omitempty"`
	FileURI  string `json:"fileUri"`
}

type functionCall struct {
	ID   string          `json:"id,omitempty"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
}

type functionResponse struct {
	ID       string            `json:"id,omitempty"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`
}

type tools struct {
	FunctionDeclarations []declaration `json:"functionDeclarations"`
}

type declaration struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Parameters  schema `json:"parameters,omitempty"`
}

type generation struct {
	MaxOutputTokens int             `json:"maxOutputTokens,omitempty"`
	Temperature     *float64        `json:"temperature,omitempty"`
	ThinkingConfig  *thinkingConfig `json:"thinkingConfig,omitempty"`
}

// opaque is what Gemini wants back with a part.
type opaque struct {
	Signature string `json:"signature,omitempty"`
	Thought   bool   `json:"thought,omitempty"` // it was a thought's, not that of the part before
	ID        string `json:"id,omitempty"`      // of a call, where Gemini gave one
}

func encode(r llm.Request) ([]byte, error) {
	var out request
	if r.System != "" {
		out.SystemInstruction = &content{Parts: []*part{{Text: &r.System}}}
	}
	var declarations []declaration
	for _, t := range r.Tools {
		s, err := parameters(wire.Schema(t))
		if err != nil {
			return nil, fmt.Errorf("the schema of the tool %s: %w", t.Name, err)
		}
		declarations = append(declarations, declaration{t.Name, t.Description, s})
	}
	if declarations != nil {
		out.Tools = []tools{{declarations}}
	}
	out.GenerationConfig = generation{r.MaxTokens, r.Temperature, thinkingOf(r.Model, r.Effort)}
	e := encoder{signed: strings.Contains(r.Model, "gemini-3"), ids: map[string]string{}}
	turns, err := wire.Turns(r.Messages)
	if err != nil {
		return nil, err
	}
	for _, m := range turns {
		c, err := e.content(m)
		if err != nil {
			return nil, err
		}
		switch n := len(out.Contents); {
		case len(c.Parts) == 0:
		case n > 0 && out.Contents[n-1].Role == c.Role:
			out.Contents[n-1].Parts = append(out.Contents[n-1].Parts, c.Parts...)
		default:
			out.Contents = append(out.Contents, c)
		}
	}
	return json.Marshal(out)
}

// encoder writes the messages of one request.
type encoder struct {
	signed bool              // the model refuses calls without a signature
	ids    map[string]string // Gemini's own ids of calls, by ours
}

func (e *encoder) content(m llm.Message) (content, error) {
	out := content{Role: "user"}
	if m.Role == llm.Assistant {
		out.Role = "model"
	}
	results := 0
	for _, p := range m.Parts {
		switch p := p.(type) {
		case llm.Text:
			if p.Text != "" {
				out.Parts = append(out.Parts, &part{Text: &p.Text})
			}
		case llm.Image:
			out.Parts = append(out.Parts, imagePart(p))
		case llm.File:
			out.Parts = append(out.Parts, &part{InlineData: &blob{p.MIME, base64.StdEncoding.EncodeToString(p.Data)}})
		case llm.Reasoning:
			out.Parts = giveBack(out.Parts, p)
		case llm.ToolCall:
			out.Parts = append(out.Parts, e.call(p, out.Parts))
		case llm.ToolResult:
			result, more, err := e.result(p)
			if err != nil {
				return out, err
			}
			// Images follow all results.
			out.Parts = append(slices.Insert(out.Parts, results, result), more...)
			results++
		default:
			return out, fmt.Errorf("a %T", p)
		}
	}
	return out, nil
}

func imagePart(i llm.Image) *part {
	if len(i.Data) == 0 && i.URL != "" {
		return &part{FileData: &fileData{i.MIME, i.URL}}
	}
	return &part{InlineData: &blob{i.MIME, base64.StdEncoding.EncodeToString(i.Data)}}
}

// giveBack adds a thought that has a signature, or puts a signature to the part
// that it came with.
func giveBack(parts []*part, r llm.Reasoning) []*part {
	var o opaque
	if !wire.Own(dialect, r.Opaque, &o) || o.Signature == "" {
		return parts
	}
	if n := len(parts); !o.Thought && n > 0 && parts[n-1].ThoughtSignature == "" && parts[n-1].FunctionCall == nil {
		parts[n-1].ThoughtSignature = o.Signature
		return parts
	}
	return append(parts, &part{Text: &r.Text, Thought: o.Thought, ThoughtSignature: o.Signature})
}

// unsigned stands for the signature of a call that another provider's model made:
// Google's documentation gives it for that.
const unsigned = "skip_thought_signature_validator"

func (e *encoder) call(c llm.ToolCall, before []*part) *part {
	var o opaque
	p := &part{FunctionCall: &functionCall{Name: c.Name, Args: wire.Arguments(c)}}
	if wire.Own(dialect, c.Opaque, &o) {
		p.ThoughtSignature = o.Signature
		p.FunctionCall.ID = o.ID
		e.ids[c.ID] = o.ID
	}
	// Of calls that are made together the first one is signed.
	first := !slices.ContainsFunc(before, func(p *part) bool { return p.FunctionCall != nil })
	if e.signed && first && p.ThoughtSignature == "" {
		p.ThoughtSignature = unsigned
	}
	return p
}

func (e *encoder) result(r llm.ToolResult) (*part, []*part, error) {
	var text []string
	var images []*part
	for _, p := range r.Parts {
		switch p := p.(type) {
		case llm.Text:
			text = append(text, p.Text)
		case llm.Image:
			images = append(images, imagePart(p))
		default:
			return nil, nil, fmt.Errorf("a %T in the result of a tool", p)
		}
	}
	key := "output"
	if r.Failed {
		key = "error"
	}
	response := &functionResponse{ID: e.ids[r.CallID], Name: r.Name, Response: map[string]string{key: strings.Join(text, "\n")}}
	return &part{FunctionResponse: response}, images, nil
}
