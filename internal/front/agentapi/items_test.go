package agentapi_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestStore: items go in and are found again, as LangGraph's store has them.
func TestStore(t *testing.T) {
	r := newRig(t, false)
	put := func(namespace, key, value, more string) {
		t.Helper()
		body := fmt.Sprintf(`{"namespace":%s,"key":%q,"value":%s%s}`, namespace, key, value, more)
		if a := r.do("PUT", "/store/items", body); a.status != 204 {
			t.Fatalf("PUT %s = %d %s", body, a.status, a.body)
		}
	}
	put(`["users","ann"]`, "/memories/a.md", `{"text":"likes green tea","n":1,"tags":["x"]}`, "")
	put(`["users","bob"]`, "b", `{"text":"likes coffee","n":2,"deep":{"a":{"b":3}}}`, `,"index":["deep"]`)
	put(`["users","bob","old"]`, "c", `{"text":"green green","n":10}`, `,"index":false,"ttl":10`)
	put(`["notes"]`, "d", `{"text":"Grüner Tee <b>","n":null}`, "")
	for _, tt := range []struct{ name, body, want string }{
		{"all", `{}`, "d c b /memories/a.md"},
		{"prefix", `{"namespace_prefix":["users"]}`, "c b /memories/a.md"},
		{"deeper", `{"namespace_prefix":["users","bob"]}`, "c b"},
		{"of a label's beginning", `{"namespace_prefix":["user"]}`, ""},
		{"page", `{"limit":1,"offset":1}`, "c"},
		{"beyond", `{"offset":10}`, ""},
		{"equal", `{"filter":{"n":2}}`, "b"},
		{"equal as a float", `{"filter":{"n":2.0}}`, "b"},
		{"null or missing", `{"filter":{"n":null}}`, "d"},
		{"greater", `{"filter":{"n":{"$gt":1}}}`, "c b"},
		{"range", `{"filter":{"n":{"$gte":1,"$lt":10}}}`, "b /memories/a.md"},
		{"not", `{"filter":{"n":{"$ne":1}}}`, "d c b"},
		{"in", `{"filter":{"n":{"$in":[1,10]}}}`, "c /memories/a.md"},
		{"not in", `{"filter":{"n":{"$nin":[1,10]}}}`, "d b"},
		{"nested", `{"filter":{"deep":{"a":{"b":3}}}}`, "b"},
		{"list", `{"filter":{"tags":["x"]}}`, "/memories/a.md"},
		{"words", `{"query":"green tea"}`, "/memories/a.md"},
		{"best first", `{"query":"likes TEA"}`, "/memories/a.md"},
		{"letters", `{"query":"grüner"}`, "d"},
		{"a field that is searched", `{"query":"3"}`, "b"},
		{"words and filter", `{"query":"likes","filter":{"n":{"$lt":2}}}`, "/memories/a.md"},
	} {
		a := r.do("POST", "/store/items/search", tt.body)
		var got struct {
			Items []struct {
				Key   string
				Score *float64
			}
		}
		a.into(t, &got)
		var keys []string
		for _, i := range got.Items {
			keys = append(keys, i.Key)
			if (i.Score != nil) != strings.Contains(tt.body, "query") {
				t.Errorf("%s: score %v", tt.name, i.Score)
			}
		}
		if strings.Join(keys, " ") != tt.want {
			t.Errorf("%s = %v, want %s", tt.name, keys, tt.want)
		}
		if kind := a.header.Get("X-Cubby-Search"); (kind == "text") != strings.Contains(tt.body, "query") {
			t.Errorf("%s: X-Cubby-Search is %q", tt.name, kind)
		}
	}
	for _, tt := range []struct{ body, want string }{
		{`{}`, `[["notes"],["users","ann"],["users","bob"],["users","bob","old"]]`},
		{`{"prefix":["users"],"max_depth":2}`, `[["users","ann"],["users","bob"]]`},
		{`{"prefix":["*","bob"]}`, `[["users","bob"],["users","bob","old"]]`},
		{`{"suffix":["bob"]}`, `[["users","bob"]]`},
		{`{"suffix":["*","old"]}`, `[["users","bob","old"]]`},
		{`{"max_depth":1}`, `[["notes"],["users"]]`},
		{`{"limit":1,"offset":1}`, `[["users","ann"]]`},
		{`{"prefix":["none"]}`, `[]`},
	} {
		got := strings.ReplaceAll(strings.TrimSpace(r.do("POST", "/store/namespaces", tt.body).body), "\n", "")
		if got != `{"namespaces":`+tt.want+`}` {
			t.Errorf("namespaces %s = %s, want %s", tt.body, got, tt.want)
		}
	}
	if a := r.do("GET", "/store/items?namespace=notes&key=d", ""); a.status != 200 || !strings.Contains(a.body, `"value":{"text":"Grüner Tee `) {
		t.Errorf("GET = %d %s", a.status, a.body)
	}
	if a := r.do("DELETE", "/store/items", `{"namespace":["notes"],"key":"d"}`); a.status != 204 {
		t.Errorf("DELETE = %d %s", a.status, a.body)
	}
	if a := r.do("GET", "/store/items?namespace=notes&key=d", ""); a.status != 200 || strings.TrimSpace(a.body) != "null" {
		t.Errorf("GET of none = %d %s", a.status, a.body)
	}
}

// TestStoreRefuses: what is not possible is refused in a way that clients do not repeat,
// with what to do.
func TestStoreRefuses(t *testing.T) {
	r := newRig(t, false)
	for _, tt := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"PUT", "/store/items", `{"namespace":[],"key":"k","value":{}}`, 422, "no label"},
		{"PUT", "/store/items", `{"namespace":["a.b"],"key":"k","value":{}}`, 422, "periods"},
		{"PUT", "/store/items", `{"namespace":[""],"key":"k","value":{}}`, 422, "empty"},
		{"PUT", "/store/items", `{"namespace":["a\u001fb"],"key":"k","value":{}}`, 422, "control"},
		{"PUT", "/store/items", `{"namespace":["langgraph"],"key":"k","value":{}}`, 422, "langgraph"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"","value":{}}`, 422, "key"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k\u0000","value":{}}`, 422, "key"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":[]}`, 422, "object"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k"}`, 422, "object"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{},"ttl":-1}`, 422, "ttl"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{},"index":7}`, 422, "index"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`, 403, "max-store-bytes-per-tenant"},
		{"PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{"x":"` + strings.Repeat("x", 2<<20) + `"}}`, 422, "at most"},
		{"GET", "/store/items?key=k", "", 422, "empty"},
		{"POST", "/store/items/search", `{"filter":{"a":{"$near":1}}}`, 422, "$near"},
		{"POST", "/store/items/search", `{"filter":{"a":{"$gt":1,"b":2}}}`, 422, "no operator"},
		{"POST", "/store/items/search", `{"filter":{"a":{"$in":1}}}`, 422, "list"},
		{"POST", "/store/items/search", `{"filter":{"a":[{"$near":1}]}}`, 422, "$near"},
		{"POST", "/store/items/search", `{"namespace_prefix":["a.b"]}`, 422, "periods"},
		{"POST", "/store/items/search", `{"limit":0}`, 400, "limit"},
		{"POST", "/store/namespaces", `{"suffix":["a.b"]}`, 422, "periods"},
		{"POST", "/store/namespaces", `{"max_depth":0}`, 422, "max_depth"},
	} {
		if a := r.do(tt.method, tt.path, tt.body); a.status != tt.status || !strings.Contains(a.body, tt.says) {
			t.Errorf("%s %s %.80s = %d %.200s, want %d with %s", tt.method, tt.path, tt.body, a.status, a.body, tt.status, tt.says)
		}
	}
	for i := range 50 {
		if a := r.do("PUT", "/store/items", fmt.Sprintf(`{"namespace":["a"],"key":"k%d","value":{}}`, i)); a.status != 204 {
			t.Fatalf("PUT = %d %s", a.status, a.body)
		}
	}
	if a := r.do("PUT", "/store/items", `{"namespace":["a"],"key":"k","value":{}}`); a.status != 403 || !strings.Contains(a.body, "max-store-items-per-tenant") {
		t.Errorf("one too many = %d %s", a.status, a.body)
	}
}

// TestAssistantVersions: a change makes a version, and an earlier one can be used again.
func TestAssistantVersions(t *testing.T) {
	r := newRig(t, false)
	var made struct {
		ID string `json:"assistant_id"`
	}
	r.do("POST", "/assistants", `{"graph_id":"agent","name":"one","context":{"c":1},"metadata":{"m":1}}`).into(t, &made)
	path := "/assistants/" + made.ID
	versions := func(body string) string {
		var list []struct {
			Version int
			Name    string
		}
		r.do("POST", path+"/versions", body).into(t, &list)
		return fmt.Sprint(list)
	}
	r.do("PATCH", path, `{"name":"two","context":{"c":2},"metadata":{"m":2}}`)
	r.do("PATCH", path, `{"name":"three"}`)
	if got := versions(`{}`); got != "[{3 three} {2 two} {1 one}]" {
		t.Errorf("versions = %s", got)
	}
	if got := versions(`{"limit":1,"offset":1}`); got != "[{2 two}]" {
		t.Errorf("a page of versions = %s", got)
	}
	if got := versions(`{"metadata":{"m":2}}`); got != "[{3 three} {2 two}]" {
		t.Errorf("versions by metadata = %s", got)
	}
	var used struct {
		Version int
		Name    string
		Context map[string]int
	}
	r.do("POST", path+"/latest", `{"version":1}`).into(t, &used)
	r.do("GET", path, "").into(t, &used)
	if used.Version != 1 || used.Name != "one" || used.Context["c"] != 1 {
		t.Errorf("the assistant is %+v", used)
	}
	// What comes after an earlier version is the next one of all.
	r.do("PATCH", path, `{"name":"four"}`).into(t, &used)
	if used.Version != 4 || used.Context["c"] != 1 || versions(`{}`) != "[{4 four} {3 three} {2 two} {1 one}]" {
		t.Errorf("the assistant is %+v, its versions %s", used, versions(`{}`))
	}
	for body, status := range map[string]int{`{"version":9}`: 404, `{"version":0}`: 422, `{}`: 422, `{"version":"x"}`: 400} {
		if a := r.do("POST", path+"/latest", body); a.status != status {
			t.Errorf("latest %s = %d %s, want %d", body, a.status, a.body, status)
		}
	}
	if a := r.do("POST", "/assistants/nope/versions", `{}`); a.status != 404 {
		t.Errorf("versions of none = %d %s", a.status, a.body)
	}
}
