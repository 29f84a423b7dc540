package agentapi

import (
	"net/http"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/front"
)

// GraphNode is a node of the graph.
type GraphNode struct {
	ID   string         `json:"id"`
	Type string         `json:"type"`
	Data map[string]any `json:"data"`
}

// GraphEdge leads from one node to another one.
type GraphEdge struct {
	Source      string `json:"source"`
	Target      string `json:"target"`
	Conditional bool   `json:"conditional"`
}

// Graph is what may follow what.
type Graph struct {
	Nodes []GraphNode `json:"nodes" nullable:"false"`
	Edges []GraphEdge `json:"edges" nullable:"false"`
}

func runnable(name string) GraphNode {
	return GraphNode{name, "runnable", map[string]any{"id": []string{"langgraph", "RunnableCallable"}, "name": name}}
}

func end(name string) GraphNode {
	return GraphNode{name, "schema", map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema"}}
}

// theGraph is the agent's.
func theGraph() Graph {
	const start, ask, act, done = conversation.NodeStart, conversation.NodeAgent, conversation.NodeTools, conversation.NodeEnd
	return Graph{
		[]GraphNode{end(start), runnable(ask), runnable(act), end(done)},
		[]GraphEdge{{start, ask, false}, {act, ask, false}, {ask, act, true}, {ask, done, true}},
	}
}

func (d *door) assistantGraph(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.Assistants.Get(r.Context(), r.PathValue("assistant_id")); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, theGraph())
	return nil
}

// Schemas are the JSON Schemas of what the graph takes and gives.
type Schemas struct {
	GraphID string         `json:"graph_id"`
	Input   map[string]any `json:"input_schema"`
	Output  map[string]any `json:"output_schema"`
	State   map[string]any `json:"state_schema"`
	Config  map[string]any `json:"config_schema"`
	Context map[string]any `json:"context_schema"`
}

// state is the schema of the graph's state.
func state() map[string]any {
	return map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": []string{"messages"},
		"properties": map[string]any{"messages": map[string]any{
			"type": "array",
			"items": map[string]any{
				"type": "object", "required": []string{"type", "content"},
				"properties": map[string]any{
					"type":    map[string]any{"type": "string", "enum": []string{conversation.Human, conversation.AI, conversation.System, conversation.Tool, conversation.Remove}},
					"id":      map[string]any{"type": "string"},
					"content": map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "array", "items": map[string]any{"type": "object"}}}},
				},
			},
		}},
	}
}

// settings is the schema of config.configurable.
func settings() map[string]any {
	text := func(about string) map[string]any { return map[string]any{"type": "string", "description": about} }
	return map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
		"properties": map[string]any{
			"chat_model":                 text("model, or provider/model"),
			"chat_model_provider":        text("openai, anthropic, google_genai or ollama"),
			"chat_model_base_url":        text("where the provider is, if elsewhere"),
			"chat_model_supports_vision": text("true or false; left out: the model is tried"),
		},
	}
}

func (d *door) assistantSchemas(w http.ResponseWriter, r *http.Request) error {
	a, err := d.Assistants.Get(r.Context(), r.PathValue("assistant_id"))
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, Schemas{a.GraphID, state(), state(), state(), settings(), settings()})
	return nil
}

// assistantSubgraphs says that the graph has none.
func (d *door) assistantSubgraphs(w http.ResponseWriter, r *http.Request) error {
	if _, err := d.Assistants.Get(r.Context(), r.PathValue("assistant_id")); err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, map[string]any{})
	return nil
}
