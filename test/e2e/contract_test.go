package e2e_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// largestValidated bounds the bodies that are compared with the schema: what
// is larger is files and output, whose shape smaller ones have too.
const largestValidated = 4 << 20

// apiContract is api/openapi.json, with which every answer of a script is
// compared.
type apiContract struct {
	routes     *http.ServeMux // of the document, for the patterns
	operations map[string]apiOperation
	shared     map[string]apiAnswer // components.responses
	mu         sync.Mutex
	resolved   map[string]*jsonschema.Resolved // by the text of the schema; guarded by mu
	defs       json.RawMessage
}

type apiOperation struct {
	Responses map[string]apiAnswer `json:"responses"`
}

type apiAnswer struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"content"`
}

var contract = sync.OnceValues(func() (*apiContract, error) {
	text, err := os.ReadFile("../../api/openapi.json")
	if err != nil {
		return nil, err
	}
	// Schemas are JSON Schema 2020-12, but for the place of their definitions.
	text = bytes.ReplaceAll(text, []byte(`"#/components/schemas/`), []byte(`"#/$defs/`))
	var doc struct {
		Paths      map[string]map[string]apiOperation `json:"paths"`
		Components struct {
			Responses map[string]apiAnswer `json:"responses"`
			Schemas   json.RawMessage      `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	c := &apiContract{
		routes: http.NewServeMux(), operations: map[string]apiOperation{}, shared: doc.Components.Responses,
		resolved: map[string]*jsonschema.Resolved{}, defs: doc.Components.Schemas,
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			pattern := strings.ToUpper(method) + " " + path
			c.routes.Handle(pattern, http.NotFoundHandler())
			c.operations[pattern] = op
		}
	}
	return c, nil
})

// schema resolves one that stands in the document.
func (c *apiContract) schema(text json.RawMessage) (*jsonschema.Resolved, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.resolved[string(text)]; r != nil {
		return r, nil
	}
	var s jsonschema.Schema
	whole := fmt.Sprintf(`{"allOf":[%s],"$defs":%s}`, text, c.defs)
	if err := json.Unmarshal([]byte(whole), &s); err != nil {
		return nil, err
	}
	r, err := s.Resolve(nil)
	c.resolved[string(text)] = r
	return r, err
}

// keepsContract says in what an answer differs from the document. Answers of
// endpoints that the document does not have are not compared, but below /v1
// there are none that succeed.
func keepsContract(method, path string, status int, header http.Header, body []byte) error {
	c, err := contract()
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, "http://daemon"+path, nil)
	if err != nil || method == http.MethodHead || status == http.StatusMethodNotAllowed || len(body) > largestValidated {
		return nil // the request is malformed on purpose, or there is nothing to compare
	}
	if err := c.compare(req, status, header.Get("Content-Type"), body); err != nil {
		return fmt.Errorf("%s %s: the answer is not what api/openapi.json says: %w: %d %s", method, path, err, status, shorten(body))
	}
	return nil
}

func (c *apiContract) compare(req *http.Request, status int, mediaType string, body []byte) error {
	_, pattern := c.routes.Handler(req)
	op, ok := c.operations[pattern]
	if !ok {
		if strings.HasPrefix(req.URL.Path, "/v1/") && status < http.StatusBadRequest {
			return errors.New("there is no such endpoint")
		}
		return nil
	}
	answer, ok := op.Responses[strconv.Itoa(status)]
	if !ok {
		answer, ok = op.Responses[strconv.Itoa(status/100)+"XX"]
	}
	if !ok && status >= http.StatusBadRequest {
		answer, ok = op.Responses["default"]
	}
	if !ok {
		return errors.New("there is no such status")
	}
	if name, is := strings.CutPrefix(answer.Ref, "#/components/responses/"); is {
		answer = c.shared[name]
	}
	if len(answer.Content) == 0 {
		if len(body) > 0 && status != http.StatusSwitchingProtocols {
			return errors.New("there is no body")
		}
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return fmt.Errorf("its Content-Type: %w", err)
	}
	content, ok := answer.Content[mediaType]
	if !ok {
		return fmt.Errorf("there is no %s", mediaType)
	}
	if mediaType != "application/json" {
		return nil
	}
	schema, err := c.schema(content.Schema)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		return err
	}
	return schema.Validate(v)
}

// TestContractSeesWhatIsWrong: the comparison itself fails for answers that
// break the document, and for nothing else.
func TestContractSeesWhatIsWrong(t *testing.T) {
	const problem = `{"error":{"code":"not_found","message":"no","retryable":false,"request_id":"1"}}`
	tests := []struct {
		name, method, path string
		status             int
		mediaType, body    string
		kept               bool
	}{
		{"a list", "GET", "/v1/images", 200, "application/json", `{"images":[]}`, true},
		{"null where a list is", "GET", "/v1/images", 200, "application/json", `{"images":null}`, false},
		{"a field too many", "GET", "/v1/images", 200, "application/json", `{"images":[],"more":1}`, false},
		{"a field too few", "GET", "/v1/images", 200, "application/json", `{}`, false},
		{"a wrong type", "GET", "/v1/images", 200, "application/json", `{"images":"a"}`, false},
		{"another media type", "GET", "/v1/images", 200, "text/plain", `{"images":[]}`, false},
		{"an error", "GET", "/v1/images", 404, "application/json", problem, true},
		{"an error without the envelope", "GET", "/v1/images", 404, "application/json", `{"detail":"no"}`, false},
		{"an undocumented success", "GET", "/v1/images", 207, "application/json", `{"images":[]}`, false},
		{"an undocumented endpoint", "GET", "/v1/secret", 200, "application/json", `{}`, false},
		{"a page", "GET", "/web", 200, "text/html", `<html>`, true},
		{"the output of a command", "GET", "/v1/sandboxes/a/execs/1/output", 200, "application/octet-stream", "x", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := keepsContract(tt.method, tt.path, tt.status, http.Header{"Content-Type": {tt.mediaType}}, []byte(tt.body))
			if (err == nil) != tt.kept {
				t.Errorf("keepsContract = %v, want an error: %v", err, !tt.kept)
			}
		})
	}
}
