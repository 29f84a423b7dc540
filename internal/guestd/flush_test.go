package guestd

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHeldWriterSendsWhenTold(t *testing.T) {
	rec := httptest.NewRecorder()
	held(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("started"))
		w.(http.Flusher).Flush()
		if rec.Flushed {
			t.Error("the flush of a message went through")
		}
		flusherOf(r.Context())()
		if !rec.Flushed {
			t.Error("what was held did not go out")
		}
	})).ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", nil))
	if got := rec.Body.String(); got != "started" {
		t.Errorf("body = %q", got)
	}
	flusherOf(context.Background())() // without a held writer it does nothing
}
