package httpapi_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

type shape struct {
	Said string `json:"said"`
}

// speaker is a dialect that signs its errors with its name.
func speaker(name string, speaks func(*http.Request) bool) httpapi.Dialect {
	return httpapi.Dialect{
		Name: name, Description: name, ErrorShape: shape{},
		Below:  func(p string) bool { return strings.HasPrefix(p, "/box") },
		Speaks: speaks,
		Refuse: func(w http.ResponseWriter, err error) {
			front.WriteJSON(w, front.RowOf(errs.KindOf(err)).HTTP, shape{name + ": " + errs.Public(err).Message})
		},
	}
}

// two has the dialects old, and young, which a header selects, or for one path a
// query.
func two(s *httpapi.Server) {
	says := func(text string) httpapi.Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			if r.URL.Query().Has("fail") {
				return errs.E(errs.NotFound, "nothing")
			}
			front.WriteJSON(w, http.StatusOK, shape{text})
			return nil
		}
	}
	route := func(id, pattern string) httpapi.Route {
		return httpapi.Route{ID: id, Pattern: pattern, Summary: id, Serve: says(id), Answers: map[int]httpapi.Content{http.StatusOK: s.JSON(shape{})}}
	}
	s.AddRoutes(s.AddDialect(speaker("old", nil)), route("old-get", "GET /box"), route("old-put", "PUT /box"), route("old-list", "GET /boxes"))
	byQuery := route("young-put", "PUT /box")
	byQuery.Claims = func(r *http.Request) bool { return r.URL.Query().Has("young") }
	young := speaker("young", func(r *http.Request) bool { return r.Header.Get("Young") != "" })
	young.RefuseMethod = func(w http.ResponseWriter, _ error) {
		front.WriteJSON(w, http.StatusMethodNotAllowed, shape{"young: no"})
	}
	s.AddRoutes(s.AddDialect(young), route("young-get", "GET /box"), byQuery)
}

func TestTheDialectOfARequestAnswers(t *testing.T) {
	s := httpapi.New(httpapi.Config{Log: slog.New(slog.DiscardHandler)}, two)
	for _, tt := range []struct {
		method, path string
		young        bool
		status       int
		said         string // "" is the canonical error
	}{
		{"GET", "/box", false, 200, "old-get"},
		{"GET", "/box", true, 200, "young-get"},
		{"GET", "/box?fail", false, 404, "old: nothing"},
		{"GET", "/box?fail", true, 404, "young: nothing"},
		{"GET", "/boxes", true, 200, "old-list"},
		{"GET", "/boxes?fail", true, 404, "young: nothing"},
		{"PUT", "/box", true, 200, "old-put"},
		{"PUT", "/box?young", false, 200, "young-put"},
		{"PUT", "/box?young&fail", false, 404, "young: nothing"},
		{"GET", "/box/none", false, 404, "old: no such endpoint"},
		{"PATCH", "/box", true, 405, "young: no"},
		{"PATCH", "/box", false, 405, ""},
		{"GET", "/other", false, 404, ""},
	} {
		r := httptest.NewRequest(tt.method, tt.path, nil)
		if tt.young {
			r.Header.Set("Young", "yes")
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		var got shape
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if w.Code != tt.status || got.Said != tt.said {
			t.Errorf("%s %s, young %v = %d %q, want %d %q", tt.method, tt.path, tt.young, w.Code, got.Said, tt.status, tt.said)
		}
		if canonical := strings.Contains(w.Body.String(), `"code"`); canonical != (tt.said == "") {
			t.Errorf("%s %s: %s", tt.method, tt.path, w.Body)
		}
	}
}

// TestASharedPathIsOneOperation: the document says of a path that two dialects
// have what both answer, also the errors of the one that is selected.
func TestASharedPathIsOneOperation(t *testing.T) {
	s := httpapi.New(httpapi.Config{Log: slog.New(slog.DiscardHandler)}, two)
	op := s.Documented("GET", "/box")
	if op.OperationID != "old-get" || len(op.Responses["200"].Content["application/json"].Schema.AnyOf) != 2 {
		t.Errorf("GET /box is %s with %+v", op.OperationID, op.Responses["200"].Content["application/json"].Schema)
	}
	for _, path := range []string{"/box", "/boxes"} {
		if n := len(s.Documented("GET", path).Responses["default"].Content["application/json"].Schema.AnyOf); n != 2 {
			t.Errorf("GET %s: errors of %d dialects, want 2", path, n)
		}
	}
}
