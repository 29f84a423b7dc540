package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestWarningsOfACopyAreShown: standard output is for programs, and has the ids alone.
func TestWarningsOfACopyAreShown(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/sandboxes/a/fork" {
			_, _ = io.WriteString(w, `{"sandboxes":[{"id":"b"}],"paused_ms":1,"warnings":["one","two"]}`)
			return
		}
		_, _ = io.WriteString(w, `{"id":"b","status":"running","warnings":["one","two"]}`)
	}))
	defer s.Close()
	for _, tt := range []struct {
		args   []string
		stdout string
	}{
		{[]string{"create", "--snapshot", "point"}, "b\n"},
		{[]string{"fork", "a"}, "b\n"},
		{[]string{"rollback", "a", "point"}, ""},
	} {
		got := cubby(t, s.URL, nil, tt.args...)
		if want := (result{stdout: tt.stdout, stderr: "warning: one\nwarning: two\n"}); got != want {
			t.Errorf("cubby %q = %+v, want %+v", tt.args, got, want)
		}
	}
}
