//go:build root

package langgraph_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// scenarios are what both servers are asked.
var scenarios = []struct {
	name string
	do   func(s *server)
}{
	{"meta", func(s *server) {
		s.do("info", "GET", "/info", nil)
		s.do("ok", "GET", "/ok", nil)
		s.do("assistant", "GET", "/assistants/agent", nil)
		s.do("graph", "GET", "/assistants/agent/graph", nil)
		s.do("subgraphs", "GET", "/assistants/agent/subgraphs", nil)
		s.do("none", "GET", "/assistants/nope", nil)
		s.do("search", "POST", "/assistants/search", object{"graph_id": "agent"})
		made := s.do("create", "POST", "/assistants", object{"graph_id": "agent", "name": "mine", "metadata": object{"a": 1}}).(object)
		path := "/assistants/" + made["assistant_id"].(string)
		s.do("again", "POST", "/assistants", object{"graph_id": "agent", "assistant_id": made["assistant_id"]})
		s.do("update", "PATCH", path, object{"metadata": object{"b": 2}, "config": object{"tags": []string{"x"}}})
		s.do("delete", "DELETE", path, nil)
	}},
	{"versions", func(s *server) {
		path := "/assistants/" + s.do("create", "POST", "/assistants", object{"graph_id": "agent", "name": "one", "metadata": object{"a": 1}}).(object)["assistant_id"].(string)
		s.do("update", "PATCH", path, object{"metadata": object{"b": 2}, "config": object{"tags": []string{"x"}}, "name": "two"})
		s.do("again", "PATCH", path, object{"metadata": object{"b": 3}})
		s.do("all", "POST", path+"/versions", object{})
		s.do("page", "POST", path+"/versions", object{"limit": 1, "offset": 1})
		s.do("by metadata", "POST", path+"/versions", object{"metadata": object{"b": 2}})
		s.do("earlier", "POST", path+"/latest", object{"version": 1})
		s.do("get", "GET", path, nil)
		s.do("next", "PATCH", path, object{"metadata": object{"c": 3}})
		s.do("all of them", "POST", path+"/versions", object{})
		s.do("none", "POST", path+"/latest", object{"version": 99})
	}},
	{"store", func(s *server) {
		put := func(key string, value any, namespace ...string) {
			s.do("put "+key, "PUT", "/store/items", object{"namespace": namespace, "key": key, "value": value})
		}
		put("k", object{"n": 1, "text": "ä <b>"}, "a", "b")
		put("/memories/m.md", object{"n": 2, "content": []string{"one", "two"}}, "a", "b", "c")
		put("o", object{"n": 3, "in": object{"x": true}}, "z")
		s.do("get", "GET", "/store/items?namespace=a.b&key=k", nil)
		s.do("get none", "GET", "/store/items?namespace=a.b&key=none", nil)
		search := func(name string, q object) { s.do("search "+name, "POST", "/store/items/search", q) }
		search("below", object{"namespace_prefix": []string{"a", "b", "c"}})
		search("equal", object{"namespace_prefix": []string{"z"}, "filter": object{"n": 3}})
		search("greater", object{"namespace_prefix": []string{"a"}, "filter": object{"n": object{"$gt": 1, "$lte": 2}}})
		search("not", object{"namespace_prefix": []string{"z"}, "filter": object{"n": object{"$ne": 3}}})
		search("in", object{"namespace_prefix": []string{}, "filter": object{"n": object{"$in": []int{3, 4}}}})
		search("nothing", object{"namespace_prefix": []string{"none"}})
		s.do("namespaces", "POST", "/store/namespaces", object{})
		s.do("namespaces cut", "POST", "/store/namespaces", object{"max_depth": 1})
		s.do("namespaces by prefix", "POST", "/store/namespaces", object{"prefix": []string{"a", "*"}, "limit": 1, "offset": 1})
		s.do("namespaces by suffix", "POST", "/store/namespaces", object{"suffix": []string{"c"}})
		s.do("bad label", "PUT", "/store/items", object{"namespace": []string{"a.b"}, "key": "k", "value": object{}})
		s.do("no value", "PUT", "/store/items", object{"namespace": []string{"a"}, "key": "k"})
		s.do("delete", "DELETE", "/store/items", object{"namespace": []string{"a", "b"}, "key": "k"})
		s.do("delete again", "DELETE", "/store/items", object{"namespace": []string{"a", "b"}, "key": "k"})
		s.do("gone", "GET", "/store/items?namespace=a.b&key=k", nil)
	}},
	{"webhook", func(s *server) {
		path := "/threads/" + s.thread()
		for _, prompt := range []string{"cubby-plain", "cubby-error"} {
			url, body := s.receive()
			s.do("run", "POST", path+"/runs", run(prompt, object{"webhook": url, "metadata": object{"who": "me"}, "stream_mode": []string{"values"}}))
			s.got = append(s.got, result{name: "posted run", body: body()})
		}
	}},
	{"threads", func(s *server) {
		thread := s.do("create", "POST", "/threads", object{"metadata": object{"who": "me"}}).(object)["thread_id"].(string)
		s.do("get", "GET", "/threads/"+thread, nil)
		s.do("again", "POST", "/threads", object{"thread_id": thread})
		s.do("anyway", "POST", "/threads", object{"thread_id": thread, "if_exists": "do_nothing"})
		s.do("update", "PATCH", "/threads/"+thread, object{"metadata": object{"more": true}})
		s.do("search", "POST", "/threads/search", object{"metadata": object{"who": "me"}})
		s.do("no state", "GET", "/threads/"+thread+"/state", nil)
		s.do("no history", "POST", "/threads/"+thread+"/history", object{})
		s.do("delete", "DELETE", "/threads/"+thread, nil)
		s.do("gone", "GET", "/threads/"+thread, nil)
		s.do("malformed", "POST", "/threads/search", object{"limit": 0})
		s.do("no assistant", "POST", "/threads/"+s.thread()+"/runs", run("cubby-plain", object{"assistant_id": "nope"}))
	}},
	{"plain", func(s *server) {
		path := "/threads/" + s.thread()
		s.do("wait", "POST", path+"/runs/wait", run("cubby-plain"))
		s.do("thread", "GET", path, nil)
		s.do("state", "GET", path+"/state", nil)
		s.do("second", "POST", path+"/runs/stream", run("cubby-again", object{"stream_mode": []string{"values", "updates"}}))
		s.do("history", "POST", path+"/history", object{"limit": 20})
		s.do("sources", "POST", path+"/history", object{"metadata": object{"source": "input"}})
		created := s.do("run", "POST", path+"/runs", run("cubby-plain", object{"multitask_strategy": "enqueue"})).(object)
		s.do("join", "GET", path+"/runs/"+created["run_id"].(string)+"/join", nil)
		s.do("joined", "GET", path+"/runs/"+created["run_id"].(string), nil)
		s.do("alone", "POST", "/runs/wait", run("cubby-plain"))
		s.do("alone stream", "POST", "/runs/stream", run("cubby-plain"))
	}},
	{"modes of one call", func(s *server) { s.modes("cubby-tool") }},
	{"modes of two calls", func(s *server) { s.modes("cubby-two") }},
	{"modes", func(s *server) {
		s.do("all", "POST", "/threads/"+s.thread()+"/runs/stream", run("cubby-tool", object{
			"stream_mode": []string{"values", "updates", "messages-tuple", "tasks", "checkpoints"}, "stream_resumable": true,
		}))
	}},
	{"errors", func(s *server) {
		for _, mode := range []string{"values", "updates", "tasks", "checkpoints", "debug"} {
			s.do(mode, "POST", "/threads/"+s.thread()+"/runs/stream", run("cubby-error", object{"stream_mode": []string{mode}}))
		}
		path := "/threads/" + s.thread()
		s.do("wait", "POST", path+"/runs/wait", run("cubby-error"))
		s.do("thread", "GET", path, nil)
		s.do("state", "GET", path+"/state", nil)
		s.do("recursion", "POST", "/threads/"+s.thread()+"/runs/stream", run("cubby-tool", object{"config": object{"recursion_limit": 2}}))
	}},
	{"breakpoints", func(s *server) {
		for _, mode := range []string{"values", "updates", "tasks", "checkpoints", "debug"} {
			path := "/threads/" + s.thread()
			s.do(mode, "POST", path+"/runs/stream", run("cubby-tool", object{"stream_mode": []string{mode}, "interrupt_before": []string{"tools"}}))
			s.do(mode+" thread", "GET", path, nil)
			s.do(mode+" state", "GET", path+"/state", nil)
			s.do(mode+" on", "POST", path+"/runs/stream", run("", object{"input": nil, "stream_mode": []string{mode}}))
		}
		path := "/threads/" + s.thread()
		s.do("after", "POST", path+"/runs/stream", run("cubby-tool", object{"stream_mode": []string{"values", "updates"}, "interrupt_after": []string{"agent"}}))
		s.do("wait", "POST", path+"/runs/wait", run("", object{"input": nil, "interrupt_before": []string{"agent"}}))
	}},
	{"questions", func(s *server) {
		// How to ask differs: a request to the daemon names the tool, the other
		// server's tool asks when it is configured to.
		asks := object{"interrupt_before": []string{"stop_session"}}
		if !strings.HasSuffix(s.url, "/agent") {
			asks = object{"config": object{"configurable": object{"approve": true}}}
		}
		for _, mode := range []string{"values", "updates", "tasks", "checkpoints", "debug"} {
			path := "/threads/" + s.thread()
			s.do(mode, "POST", path+"/runs/stream", run("cubby-tool", asks, object{"stream_mode": []string{mode}}))
			s.do(mode+" thread", "GET", path, nil)
			s.do(mode+" state", "GET", path+"/state", nil)
			s.do(mode+" runs", "GET", path+"/runs", nil)
			s.do(mode+" on", "POST", path+"/runs/stream", run("", asks, object{
				"input": nil, "command": object{"resume": object{"decisions": []any{object{"type": "approve"}}}}, "stream_mode": []string{mode},
			}))
			s.do(mode+" after", "GET", path, nil)
		}
		s.do("wait", "POST", "/threads/"+s.thread()+"/runs/wait", run("cubby-tool", asks))
	}},
	{"branches", func(s *server) {
		path := "/threads/" + s.thread()
		s.raw("POST", path+"/runs/wait", run("cubby-plain"))
		history := s.do("history", "POST", path+"/history", object{"limit": 20}).([]any)
		asked := history[1].(object)
		at := asked["checkpoint"].(object)["checkpoint_id"].(string)
		s.do("at", "GET", path+"/state/"+at, nil)
		s.do("at by reference", "POST", path+"/state/checkpoint", object{"checkpoint": object{"checkpoint_id": at}})
		s.do("before", "POST", path+"/history", object{"limit": 1, "before": at})
		s.do("again", "POST", path+"/runs/stream", run("", object{"input": nil, "checkpoint": object{"checkpoint_id": at, "checkpoint_ns": "", "checkpoint_map": nil}, "stream_mode": []string{"values", "updates"}}))
		s.do("edit", "POST", path+"/runs/stream", run("cubby-again", object{"checkpoint": object{"checkpoint_id": history[2].(object)["checkpoint"].(object)["checkpoint_id"]}, "stream_mode": []string{"values", "updates"}}))
		s.do("all", "POST", path+"/history", object{"limit": 20})
		s.do("update", "POST", path+"/state", object{"values": object{"messages": []any{object{"type": "human", "content": "more", "id": "u1"}}}, "as_node": "agent"})
		s.do("updated", "GET", path+"/state", nil)
		s.do("remove", "POST", path+"/state", object{"values": object{"messages": []any{object{"type": "remove", "id": "u1", "content": ""}}}, "as_node": "agent"})
		s.do("removed", "GET", path+"/state", nil)
		s.do("copy", "POST", path+"/copy", nil)
		s.do("none", "GET", path+"/state/1f0caa98-bfa9-6bbf-bf5b-d7e4ef1b6a7c", nil)
	}},
	{"made states", func(s *server) {
		says := func(kind, text, id string) object {
			return object{"messages": []any{object{"type": kind, "content": text, "id": id}}}
		}
		step := func(node string, values object) object {
			return object{"updates": []any{object{"values": values, "as_node": node}}}
		}
		question, answer := says("human", "hi", "h1"), says("ai", "yes", "a1")
		for _, steps := range [][]object{
			{step("__input__", question), step("__start__", question), step("agent", answer)},
			{step("__input__", question), step("agent", answer)},
			{step("__start__", question), step("agent", answer), step("__input__", says("human", "2", "h2")), step("__start__", says("human", "2", "h2"))},
		} {
			_, text := s.raw("POST", "/threads", object{"metadata": object{"graph_id": "agent"}, "supersteps": steps})
			var made struct {
				ID string `json:"thread_id"`
			}
			if err := json.Unmarshal(text, &made); err != nil {
				s.t.Fatalf("%s: %v", text, err)
			}
			s.do("history", "POST", "/threads/"+made.ID+"/history", object{"limit": 20})
		}
	}},
	{"commands", func(s *server) {
		for _, command := range []object{
			{"update": []any{[]any{"messages", []any{object{"type": "human", "content": "cubby-plain", "id": "h1"}}}}, "goto": "agent"},
			{"update": object{"messages": []any{object{"type": "human", "content": "cubby-plain", "id": "h1"}}}, "goto": []any{"agent"}},
		} {
			s.do("goto", "POST", "/threads/"+s.thread()+"/runs/wait", object{"assistant_id": "agent", "command": command})
		}
	}},
	{"cancel", func(s *server) {
		path := "/threads/" + s.thread()
		created := s.do("run", "POST", path+"/runs", run("cubby-slow", object{"stream_mode": []string{"values"}})).(object)
		at := path + "/runs/" + created["run_id"].(string)
		for { // it goes on, and has said something
			_, text := s.raw("GET", at, nil)
			_, state := s.raw("GET", path+"/state", nil)
			if strings.Contains(string(text), `"status":"running"`) && strings.Contains(string(state), "cubby-slow") {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		s.do("reject", "POST", path+"/runs", run("cubby-plain", object{"multitask_strategy": "reject"}))
		s.do("update", "POST", path+"/state", object{"values": object{"messages": []any{}}})
		s.do("busy", "GET", path, nil)
		s.do("cancel", "POST", at+"/cancel?wait=1", nil)
		s.do("canceled", "GET", at, nil)
		s.do("thread", "GET", path, nil)
		s.do("again", "POST", at+"/cancel", nil)
		s.do("delete", "DELETE", at, nil)
		s.do("gone", "GET", at, nil)
	}},
}

// modes runs a prompt once for each mode.
func (s *server) modes(prompt string) {
	for _, mode := range []string{"values", "updates", "messages", "messages-tuple", "debug", "tasks", "checkpoints", "tools", "events"} {
		s.do(mode, "POST", "/threads/"+s.thread()+"/runs/stream", run(prompt, object{"stream_mode": []string{mode}}))
	}
}

// known are the differences between the two servers, by where they are.
var known = []difference{
	{regexp.MustCompile(`usage_metadata\.(input_token_details|output_token_details|cost_usd)`), "cubby tells what was cached and what it cost"},
	{regexp.MustCompile(`tool_call_chunks$`), "there messages are kept as the chunks that they came in; here chunks have chunks"},
	{regexp.MustCompile(`response_metadata\.model_provider$`), "cubby names the provider"},
	{regexp.MustCompile(`(langgraph_version|langgraph_plan|langgraph_host|ls_integration|versions|created_by|user-agent|run_attempt)$`), "what it says of the server and of the client's program"},
	{regexp.MustCompile(`messages\[\]\.(metadata|artifact)$`), "there the results of tools have fields that are empty"},
	{regexp.MustCompile(`state_updated_at$`), "there it is missing"},
	{regexp.MustCompile(`recursion_limit$`), "here there is no limit of steps unless a request sets one"},
	{regexp.MustCompile(`info\.(version|context|langgraph_js_version|flags\.(crons|langsmith_tracing_replicas))$`), "it is another server"},
	{regexp.MustCompile(`graph\.nodes\[\]\.data\.(id\[\]|name)$`), "there the node is of a class of JavaScript"},
	{regexp.MustCompile(`threads: \w+(\[\])?\.(values|interrupts)$|(busy|run|thread|copy)\.(values|interrupts)$`), "what a thread has none of is null or empty, and there it is missing"},
	{regexp.MustCompile(`interrupts\.ID$`), "a task that asks nothing is not in the list of interrupts"},
	{regexp.MustCompile(`config\.configurable$`), "there the client's program is a setting of the thread"},
	{regexp.MustCompile(`no state\.metadata$`), "there it is missing"},
	{regexp.MustCompile(`(tasks tasks|debug debug\.payload|on tasks|on debug\.payload)\.metadata\.`), "with a task and a resumed checkpoint go the run's metadata; there some of them, and others"},
	{regexp.MustCompile(`checkpoints on checkpoints\.metadata\.`), "there a checkpoint that a run goes on from has all of its metadata"},
	{regexp.MustCompile(`parent_config\.(tags|metadata|configurable\.\w+)$`), "there the configuration of the run before is not kept"},
	{regexp.MustCompile(`configurable\.(approve|graph_id)$|metadata\.approve$|kwargs\.interrupt_before$`), "how the servers are made to ask differs, and a run's settings do not have its graph"},
	{regexp.MustCompile(`payload\.tasks\[\]\.interrupts\[\]$`), "what a task has asked is with the task's result"},
	{regexp.MustCompile(`(run|runs\[\]|joined|canceled|alone)\.(kwargs\.config\.)?metadata\.(graph_id|assistant_id)$`), "a run's metadata are those that came with it"},
	{regexp.MustCompile(`kwargs\.resumable$`), "each run can be joined again"},
	{regexp.MustCompile(`tasks\[\]\.result$`), "what a task gave is in the next state"},
	{regexp.MustCompile(`(messages\[\]|complete\[\]|output)\.id$`), "there a tool's message has its id from its run, or none yet"},
	{regexp.MustCompile(`(complete\[\]|output)\.(metadata|artifact)$`), "there the results of tools have fields that are empty"},
	{regexp.MustCompile(`messages\[\]\.(invalid_tool_calls|tool_calls)\[\]$|tool_calls\[\]\.args\.\w+$`), "there halves of a call are read as far as they go; here a call has arguments when they are whole"},
	{regexp.MustCompile(`error\.(error|message)$|__error__\.(error|message)$|tasks\[\]\.error$|debug\.payload\.error$|tasks tasks\.error$`), "errors have names of their own, and say whose they are"},
	{regexp.MustCompile(`breakpoints: wait\.messages$|questions: wait\.messages$`), "who waits for a run that asks gets the state too, as in Python"},
	{regexp.MustCompile(`checkpoint\.checkpoint_map$`), "there it is missing"},
	{regexp.MustCompile(`events\.parent_ids$`), "there it is missing, which other servers send"},
	{regexp.MustCompile(`events\.name$`), "there it is the class of the model"},
	{regexp.MustCompile(`chunk\.(invalid_tool_calls|tool_calls)\[\]$|messages\[\]\[\]\.(metadata|artifact|id)$`), "as with messages that come in other ways"},
	{regexp.MustCompile(`(all|events) tasks\.metadata\.thread_id$|updated\.metadata\.assistant_id$|removed\.metadata\.assistant_id$`), "cubby says whose it is"},
	{regexp.MustCompile(`errors: thread\.error$`), "cubby says why the thread's run failed"},
	{regexp.MustCompile(`branches: none status$`), "a checkpoint that is none is not found; there it is an empty state"},
	{regexp.MustCompile(`branches: all\[\]$`), "a run from an older state is a child of that; there of a copy of it"},
	{regexp.MustCompile(`cancel: (cancel|again) status$`), "who cancels a run gets it, as of other servers"},
	{regexp.MustCompile(`made states: history\[\]\.metadata\.graph_id$`), "what a thread says of its assistant holds for its states"},
	{regexp.MustCompile(`store: no value status$`), "an item that is none is refused with 422, whatever is wrong with it"},
	{regexp.MustCompile(`webhook: .*\.kwargs\.webhook$`), "each is told another URL"},
	{regexp.MustCompile(`posted run\.values\.messages`), "there they are written as objects of JavaScript, here as everywhere else and as Python's server has them"},
	{regexp.MustCompile(`posted run\.error$`), "errors have words of their own"},
	{regexp.MustCompile(`copy\.metadata\.thread_id$`), "a copy's metadata are those of the thread"},
}

// sometimes is what differs unless the other server is quick.
var sometimes = []difference{
	{regexp.MustCompile(`cancel: thread\.status$`), "a thread whose run was canceled can go on, and says so"},
}
