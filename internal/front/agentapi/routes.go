package agentapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
	"github.com/cubbyhq/cubby/internal/telemetry"
)

// endpoint is a line of the list of them.
type endpoint struct {
	pattern, summary string
	serve            httpapi.Handler
	body, answer     any
	query            []httpapi.Query
	status           int // 200 unless set
}

// streamed is the answer of endpoints that send events, and listOf that of a list.
type (
	streamed struct{}
	listOf   struct{ of any }
)

var (
	xray    = []httpapi.Query{{Name: "xray", Type: huma.TypeBoolean}}
	recurse = []httpapi.Query{{Name: "recurse", Type: huma.TypeBoolean}}
	nested  = []httpapi.Query{{Name: "subgraphs", Type: huma.TypeBoolean}}
	joining = []httpapi.Query{
		{Name: "cancel_on_disconnect", Type: huma.TypeBoolean, Doc: "Cancel the run when the last one who follows it leaves."},
	}
	watching = append([]httpapi.Query{
		{Name: "stream_mode", Type: huma.TypeString, Doc: "A mode, a JSON list of them, or several times one; left out: what the run was made with."},
	}, joining...)
	canceling = []httpapi.Query{
		{Name: "wait", Type: huma.TypeBoolean, Doc: "Answer when the run has ended."},
		{Name: "action", Type: huma.TypeString, Doc: "interrupt keeps what the run has done, rollback takes it back."},
	}
	paging = []httpapi.Query{
		{Name: "limit", Type: huma.TypeInteger}, {Name: "offset", Type: huma.TypeInteger}, {Name: "status", Type: huma.TypeString},
		{Name: "select", Type: huma.TypeString, Doc: "Fields that are shown, repeated or with commas between them"},
	}
	earlier = []httpapi.Query{{Name: "limit", Type: huma.TypeInteger}, {Name: "before", Type: huma.TypeString, Doc: "A checkpoint's id"}}
	whole   = []httpapi.Query{{Name: "delete_threads", Type: huma.TypeBoolean}}
)

func (d *door) endpoints() []endpoint {
	const assistant, thread, run = "/assistants/{assistant_id}", "/threads/{thread_id}", "/threads/{thread_id}/runs/{run_id}"
	free := map[string]any{}
	return slices.Concat(d.itemEndpoints(), d.cronEndpoints(), []endpoint{
		{pattern: "GET /info", summary: "What this is", serve: d.info, answer: Info{}},
		{pattern: "GET /ok", summary: "Whether it is there", serve: d.ok, answer: map[string]bool{}},

		{pattern: "POST /assistants", summary: "Make an assistant", serve: d.createAssistant, body: AssistantCreate{}, answer: Assistant{}},
		{pattern: "POST /assistants/search", summary: "List assistants", serve: d.searchAssistants, body: free, answer: listOf{Assistant{}}},
		{pattern: "POST /assistants/count", summary: "Count assistants", serve: d.countAssistants, body: free, answer: 0},
		{pattern: "GET " + assistant, summary: "Show an assistant, by its id or its graph's", serve: d.getAssistant, answer: Assistant{}},
		{pattern: "PATCH " + assistant, summary: "Change an assistant", serve: d.updateAssistant, body: free, answer: Assistant{}},
		{pattern: "DELETE " + assistant, summary: "Remove an assistant", serve: d.deleteAssistant, query: whole, answer: []string{}},
		{pattern: "GET " + assistant + "/graph", summary: "Show the graph", serve: d.assistantGraph, query: xray, answer: Graph{}},
		{pattern: "GET " + assistant + "/schemas", summary: "Show what the graph takes and gives", serve: d.assistantSchemas, answer: Schemas{}},
		{pattern: "GET " + assistant + "/subgraphs", summary: "List subgraphs: there are none", serve: d.assistantSubgraphs, query: recurse, answer: free},
		{pattern: "GET " + assistant + "/subgraphs/{namespace}", summary: "Show a subgraph: there is none", serve: d.assistantSubgraphs, query: recurse, answer: free},
		{pattern: "POST " + assistant + "/versions", summary: "List versions, newest first", serve: d.assistantVersions, body: free, answer: listOf{AssistantVersion{}}},
		{pattern: "POST " + assistant + "/latest", summary: "Choose the version that is used", serve: d.latestAssistant, body: VersionChoice{}, answer: Assistant{}},

		{pattern: "POST /threads", summary: "Make a thread", serve: d.createThread, body: ThreadCreate{}, answer: Thread{}},
		{pattern: "POST /threads/search", summary: "List threads, newest first", serve: d.searchThreads, body: free, answer: listOf{Thread{}}},
		{pattern: "POST /threads/count", summary: "Count threads", serve: d.countThreads, body: free, answer: 0},
		{pattern: "POST /threads/prune", summary: "Delete several threads", serve: d.pruneThreads, body: free, answer: Pruned{}},
		{pattern: "GET " + thread, summary: "Show a thread", serve: d.getThread, answer: Thread{}},
		{pattern: "PATCH " + thread, summary: "Merge a thread's metadata", serve: d.updateThread, body: free, answer: Thread{}},
		{pattern: "DELETE " + thread, summary: "Delete a thread, and destroy its sandboxes", serve: d.deleteThread, status: http.StatusNoContent},
		{pattern: "POST " + thread + "/copy", summary: "Copy a thread", serve: d.copyThread, answer: Thread{}},
		{pattern: "GET " + thread + "/state", summary: "Show a thread's newest state", serve: d.getState, query: nested, answer: ThreadState{}},
		{pattern: "POST " + thread + "/state", summary: "Change a thread's state", serve: d.updateState, body: StateUpdate{}, answer: StateUpdated{}},
		{pattern: "PATCH " + thread + "/state", summary: "Merge metadata of a thread's newest state", serve: d.annotateState, body: free, answer: StateUpdated{}},
		{pattern: "GET " + thread + "/state/{checkpoint_id}", summary: "Show a thread's state at a checkpoint", serve: d.getStateAt, query: nested, answer: ThreadState{}},
		{pattern: "POST " + thread + "/state/checkpoint", summary: "The same, by a reference", serve: d.postStateAt, body: free, answer: ThreadState{}},
		{pattern: "GET " + thread + "/history", summary: "List a thread's states, newest first", serve: d.getHistory, query: earlier, answer: listOf{ThreadState{}}},
		{pattern: "POST " + thread + "/history", summary: "Search a thread's states, newest first", serve: d.postHistory, body: free, answer: listOf{ThreadState{}}},
		{pattern: "GET " + thread + "/stream", summary: "Follow all runs of a thread", serve: d.threadStream, query: watching[:1], answer: streamed{}},

		{pattern: "POST " + thread + "/runs", summary: "Begin a run", serve: d.createRun, body: RunCreate{}, answer: Run{}},
		{pattern: "POST " + thread + "/runs/stream", summary: "Begin a run and follow it", serve: d.streamRun, body: RunCreate{}, answer: streamed{}},
		{pattern: "POST " + thread + "/runs/wait", summary: "Begin a run and wait for its state", serve: d.waitRun, body: RunCreate{}, answer: free},
		{pattern: "GET " + thread + "/runs", summary: "List a thread's runs, newest first", serve: d.listRuns, query: paging, answer: listOf{Run{}}},
		{pattern: "GET " + run, summary: "Show a run", serve: d.getRun, answer: Run{}},
		{pattern: "DELETE " + run, summary: "Forget a run that has ended", serve: d.deleteRun, status: http.StatusNoContent},
		{pattern: "GET " + run + "/join", summary: "Wait for a run's state", serve: d.joinRun, query: joining, answer: free},
		{pattern: "GET " + run + "/stream", summary: "Follow a run, from its beginning or from Last-Event-ID", serve: d.joinStream, query: watching, answer: streamed{}},
		{pattern: "POST " + run + "/cancel", summary: "Cancel a run", serve: d.cancelRun, query: canceling, answer: Run{}},

		{pattern: "POST /runs", summary: "Begin a run in a thread of its own", serve: d.createRun, body: RunCreate{}, answer: Run{}},
		{pattern: "POST /runs/stream", summary: "Begin a run in a thread of its own, and follow it", serve: d.streamRun, body: RunCreate{}, answer: streamed{}},
		{pattern: "POST /runs/wait", summary: "Begin a run in a thread of its own, and wait for its state", serve: d.waitRun, body: RunCreate{}, answer: free},
		{pattern: "POST /runs/batch", summary: "Begin several runs, each in a thread of its own", serve: d.createRuns, body: listOf{RunCreate{}}, answer: listOf{Run{}}},
		{pattern: "POST /runs/cancel", summary: "Cancel several runs", serve: d.cancelRuns, query: canceling[1:], body: RunsCancel{}, status: http.StatusNoContent},
	})
}

// routes are the endpoints below a prefix. Their ids begin with ids.
func (d *door) routes(prefix, ids string) []httpapi.Route {
	var list []httpapi.Route
	for _, e := range d.endpoints() {
		method, path, _ := strings.Cut(e.pattern, " ")
		route := httpapi.Route{
			ID: ids + idOf(method, path), Pattern: method + " " + prefix + path, Summary: e.summary, Query: e.query, Serve: e.serve,
		}
		if e.pattern == "DELETE /threads/{thread_id}" && prefix == "" {
			// It is sandbox-agent's path too, whose clients know one answer.
			route.Serve, route.Claims, e.status, e.answer = d.deleteRootThread, always, 0, ThreadDeleted{}
		}
		if e.body != nil {
			route.Body = d.content(e.body)
		}
		if e.status == 0 {
			e.status = http.StatusOK
		}
		route.Answers = map[int]httpapi.Content{e.status: nil}
		if e.answer != nil {
			route.Answers[e.status] = d.content(e.answer)
		}
		list = append(list, route)
	}
	return list
}

func (d *door) content(v any) httpapi.Content {
	switch v := v.(type) {
	case streamed:
		return httpapi.Media(sse.MediaType, &huma.Schema{Type: huma.TypeString})
	case listOf:
		return d.JSONList(v.of)
	}
	return d.JSON(v)
}

// idOf makes the id of an operation out of what it is.
func idOf(method, path string) string {
	name := strings.ToLower(method)
	for part := range strings.SplitSeq(path, "/") {
		if part = strings.Trim(part, "{}"); part != "" {
			name += "-" + strings.ReplaceAll(part, "_", "-")
		}
	}
	return name
}

// Info says what clients talk to.
type Info struct {
	Version string          `json:"version"`
	Context string          `json:"context"`
	Flags   map[string]bool `json:"flags"`
}

func (d *door) info(w http.ResponseWriter, _ *http.Request) error {
	front.WriteJSON(w, http.StatusOK, Info{telemetry.Version, "cubby", map[string]bool{
		"assistants": true, "crons": true, "langsmith": false, "langsmith_tracing_replicas": false,
	}})
	return nil
}

func (d *door) ok(w http.ResponseWriter, _ *http.Request) error {
	front.WriteJSON(w, http.StatusOK, map[string]bool{"ok": true})
	return nil
}
