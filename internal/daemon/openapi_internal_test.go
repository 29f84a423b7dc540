package daemon

import (
	"bytes"
	"encoding/json"
	"flag"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/agent"
	"github.com/cubbyhq/cubby/internal/core"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

var update = flag.Bool("update", false, "rewrite golden files")

const golden = "../../api/openapi.json"

func document(t *testing.T) []byte {
	t.Helper()
	// The routes need no working service to be described.
	api := httpapi.New(httpapi.Config{Core: new(core.Service), Metrics: telemetry.NewMetrics("test"), Log: slog.New(slog.DiscardHandler), Version: "1"}, apis(agentParts{service: new(agent.Service)}, false)...)
	doc, err := api.Document()
	if err != nil {
		t.Fatal(err)
	}
	return append(doc, '\n')
}

func TestOpenAPI(t *testing.T) {
	got := document(t)
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("api/openapi.json is not what the code says; run: go test ./internal/daemon -run OpenAPI -update")
	}
}

// TestOpenAPIIsComplete: every operation has an id, a summary, a tag, a success
// and an error, every reference leads somewhere, and every schema has one.
func TestOpenAPIIsComplete(t *testing.T) {
	type operation struct {
		OperationID string                     `json:"operationId"`
		Summary     string                     `json:"summary"`
		Tags        []string                   `json:"tags"`
		Responses   map[string]json.RawMessage `json:"responses"`
		Parameters  []struct {
			Name, In string
		} `json:"parameters"`
	}
	var doc struct {
		OpenAPI    string                          `json:"openapi"`
		Paths      map[string]map[string]operation `json:"paths"`
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	text := document(t)
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("openapi = %q, want 3.1", doc.OpenAPI)
	}
	seen := map[string]string{}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			where := strings.ToUpper(method) + " " + path
			if op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s lacks an id, a summary or its one tag", where)
			}
			if other, ok := seen[op.OperationID]; ok {
				t.Errorf("%s and %s share the id %s", where, other, op.OperationID)
			}
			seen[op.OperationID] = where
			ok := false
			for status := range op.Responses {
				ok = ok || status[0] == '2' || status == "101" || status == "302" // what succeeds can be elsewhere
			}
			if !ok || op.Tags[0] != "host" && op.Responses["default"] == nil {
				t.Errorf("%s: responses = %v", where, op.Responses)
			}
			for rest := path; ; {
				_, after, found := strings.Cut(rest, "{")
				if !found {
					break
				}
				name, tail, _ := strings.Cut(after, "}")
				rest = tail
				documented := false
				for _, p := range op.Parameters {
					documented = documented || p.In == "path" && p.Name == name
				}
				if !documented {
					t.Errorf("%s: {%s} is not described", where, name)
				}
			}
		}
	}
	for _, path := range []string{"/v1/sandboxes", "/v1/sandboxes/{id}/exec", "/v1/sandboxes/{id}/execs/{seq}/stream", "/v1/sandboxes/{id}/files/content", "/sandbox", "/sandboxes", "/healthz", "/metrics"} {
		if doc.Paths[path] == nil {
			t.Errorf("%s is not in the document", path)
		}
	}
	for _, part := range strings.Split(string(text), `"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("reference to the missing schema %s", name)
		}
	}
	for _, foreign := range []string{"ErrorModel", "ErrorDetail"} {
		if doc.Components.Schemas[foreign] != nil {
			t.Errorf("huma's own schema %s is in the document", foreign)
		}
	}
	for name := range doc.Components.Schemas {
		if !strings.Contains(string(text), `"#/components/schemas/`+name+`"`) {
			t.Errorf("nothing refers to the schema %s", name)
		}
	}
}

// TestGeneratedClientsCanReadAnswers: what generators of clients stumble over
// is not in the document.
func TestGeneratedClientsCanReadAnswers(t *testing.T) {
	type answer struct {
		Ref     string                     `json:"$ref"`
		Content map[string]json.RawMessage `json:"content"`
	}
	var doc struct {
		Servers []struct{ URL string }
		Tags    []struct{ Name, Description string }
		Paths   map[string]map[string]struct {
			Tags      []string
			Responses map[string]answer
		}
		Components struct {
			Responses map[string]answer
			Schemas   map[string]struct {
				Required   []string
				Properties map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(document(t), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Servers) == 0 || doc.Servers[0].URL == "" {
		t.Error("no server is named")
	}
	declared := map[string]bool{}
	for _, tag := range doc.Tags {
		declared[tag.Name] = tag.Description != ""
	}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			where := strings.ToUpper(method) + " " + path
			if !declared[op.Tags[0]] {
				t.Errorf("%s: the tag %s is not declared with a description", where, op.Tags[0])
			}
			refusals, texts, streams := 0, 0, 0
			for status, a := range op.Responses {
				if name, ok := strings.CutPrefix(a.Ref, "#/components/responses/"); ok && doc.Components.Responses[name].Content["application/json"] == nil {
					t.Errorf("%s: %s refers to %s, which is not there", where, status, name)
				}
				switch {
				case status[0] == '4':
					refusals++
				case status[0] == '2' && a.Content["application/json"] != nil:
					texts++
				case status[0] == '2' && a.Content["text/event-stream"] != nil:
					streams++
				}
			}
			if refusals == 0 && !slices.Contains([]string{"/healthz", "/health", "/readyz", "/llms.txt", "/llm.txt"}, path) {
				t.Errorf("%s declares no 4xx", where)
			}
			// A client has one type for a status: a stream by itself hides what
			// another status has.
			if texts > 0 && streams > 0 {
				t.Errorf("%s: one success is a stream alone, and another one is JSON", where)
			}
		}
	}
	for schema, fields := range map[string][]string{"Execution": {"error", "result"}, "ECSEvent": {"result", "completed_at"}, "Exec": {"exit_code"}} {
		for _, field := range fields {
			if s := doc.Components.Schemas[schema]; !slices.Contains(s.Required, field) || !strings.Contains(string(s.Properties[field]), `"null"`) {
				t.Errorf("%s.%s is null at times, and the document does not say so: %s", schema, field, s.Properties[field])
			}
		}
	}
}
