package web

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	mux := http.NewServeMux()
	Register(mux)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	page := get("/web")
	if page.Code != http.StatusOK || get("/web/").Body.String() != page.Body.String() {
		t.Fatalf("the page: %d", page.Code)
	}
	if csp := page.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self';") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	refs := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if len(refs) < 5 {
		t.Errorf("the page refers to %v", refs)
	}
	for _, ref := range refs {
		if ref[1] == "data:," {
			continue
		}
		if !Path(ref[1]) {
			t.Errorf("%s is not the daemon's own", ref[1])
		}
		if w := get(ref[1]); w.Code != http.StatusOK || w.Body.Len() == 0 || w.Header().Get("Content-Type") == "" {
			t.Errorf("%s: %d, %s", ref[1], w.Code, w.Header().Get("Content-Type"))
		}
	}
	if inline := regexp.MustCompile(`<script>|<script [^>]*>[^<]|\son[a-z]+=|javascript:`); inline.MatchString(page.Body.String()) {
		t.Error("the page has a script of its own")
	}
	if w := get("/web/none.js"); w.Code != http.StatusNotFound {
		t.Errorf("what there is not: %d", w.Code)
	}
	for path, want := range map[string]bool{"/web": true, "/web/": true, "/web/page.js": true, "/webs": false, "/": false, "/v1/web": false} {
		if Path(path) != want {
			t.Errorf("Path(%s) = %v", path, !want)
		}
	}
}
