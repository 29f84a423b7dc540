package rest

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// dialectAnswers are the answers of dialects beside the one that their routes
// name, by operation and status. A path that sandboxed and ecs-sandbox have in
// common answers in one shape or the other, see [ecsSpoken].
var dialectAnswers = map[string]map[int][]any{
	"sandboxed-create":             {http.StatusCreated: {SandboxedRow{}, ECSCreated{}}},
	"sandboxed-delete":             {http.StatusOK: {ECSDestroyed{}}},
	"sandboxed-exec":               {http.StatusOK: {SandboxedResult{}, ECSDone{}}, http.StatusAccepted: {ECSAccepted{}}, http.StatusRequestTimeout: {ECSGoesOn{}}},
	"sandbox-agent-upload":         {http.StatusUnprocessableEntity: {AgentMissing{}}},
	"sandbox-agent-download":       {http.StatusUnprocessableEntity: {AgentMissing{}}},
	"sandbox-agent-delete-thread":  {http.StatusOK: {AgentThreadDeleted{}}},
	"sandbox-agent-delete-session": {http.StatusOK: {AgentDeleted{}}, http.StatusNotFound: {sandboxedError{}}, http.StatusInternalServerError: {sandboxedError{}}},
	"ecs-event":                    {http.StatusAccepted: {ECSAccepted{}}},
	"ecs-git-clone":                {http.StatusAccepted: {ECSAccepted{}}},
	"ecs-git-commit":               {http.StatusAccepted: {ECSAccepted{}}},
	"ecs-write-file":               {http.StatusCreated: {ECSFile{}}},
	"ecs-delete-file":              {http.StatusOK: {ECSDeleted{}}},
}

// neverOK are the operations of ecs-sandbox that succeed with another status
// than 200.
var neverOK = []string{"ecs-git-clone", "ecs-git-commit", "ecs-write-file"}

// dialectBodies are the bodies of paths that two dialects have in common.
var dialectBodies = map[string][]any{
	"sandboxed-create": {SandboxedInput{}, ECSCreate{}},
	"sandboxed-exec":   {SandboxedExec{}, ECSExec{}},
}

// describeDialects adds to the document what the routes of dialects do not say
// of themselves.
func (d *Door) describeDialects() {
	ops := map[string]*huma.Operation{}
	for _, item := range d.api.OpenAPI().Paths {
		for _, op := range operationsOf(item) {
			ops[op.OperationID] = op
		}
	}
	for id, answers := range dialectAnswers {
		for status, shapes := range answers {
			ops[id].Responses[statusText(status)] = &huma.Response{
				Description: http.StatusText(status), Content: content("application/json", d.oneShape(shapes)),
			}
		}
	}
	text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "The output as it comes, when stream is true."}}
	ops["sandboxed-exec"].Responses["200"].Content["text/plain"] = text
	ops["sandbox-agent-download"].Responses["200"].Content["application/zip"] = content("application/zip", nil)["application/zip"]
	for _, id := range neverOK {
		delete(ops[id].Responses, "200")
	}
	for id, shapes := range dialectBodies {
		ops[id].RequestBody.Content = content("application/json", d.oneShape(shapes))
	}
	query := func(id, name, kind, doc string, required bool) {
		ops[id].Parameters = append(ops[id].Parameters, &huma.Param{
			Name: name, In: "query", Required: required, Description: doc, Schema: &huma.Schema{Type: kind},
		})
	}
	query("ecs-read-file", "path", huma.TypeString, "The file.", true)
	query("ecs-delete-file", "path", huma.TypeString, "The file, for clients that send no body with DELETE.", false)
	query("ecs-list-files", "path", huma.TypeString, "The directory; default /workspace.", false)
	query("ecs-history", "after_seq", huma.TypeInteger, "Only operations behind this one.", false)
	query("ecs-history", "limit", huma.TypeInteger, "At most so many, 1 to 999; default 50.", false)
	for id, op := range ops {
		if strings.HasPrefix(id, "sandboxed-") {
			either := []*huma.Schema{d.schema(sandboxedError{}, "SandboxedError"), d.schema(ecsError{}, "ECSError")}
			op.Responses["default"].Content = content("application/json", &huma.Schema{AnyOf: either})
		}
	}
}

// oneShape is a schema of one shape or any of several.
func (d *Door) oneShape(shapes []any) *huma.Schema {
	if len(shapes) == 1 {
		return d.schema(shapes[0], "")
	}
	s := &huma.Schema{}
	for _, v := range shapes {
		s.AnyOf = append(s.AnyOf, d.schema(v, ""))
	}
	return s
}
