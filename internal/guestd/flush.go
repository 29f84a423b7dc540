package guestd

import (
	"context"
	"net/http"
)

// heldWriter sends nothing before its handler ends, or its buffer is full, or
// [flusherOf] was called. The service's handlers flush after every message, and
// most commands have all of theirs at once: each flush is a system call here,
// dear in gVisor, and wakes the host.
type heldWriter struct{ http.ResponseWriter }

// Flush implements http.Flusher: the handlers call it.
func (heldWriter) Flush() {}

// Unwrap is for http.ResponseController.
func (w heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type heldKey struct{}

// held makes the messages of h wait for a flush.
func held(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), heldKey{}, http.NewResponseController(w))
		h.ServeHTTP(heldWriter{w}, r.WithContext(ctx))
	})
}

// flusherOf returns the function that sends what waits. A connection that is
// gone shows itself in the next message.
func flusherOf(ctx context.Context) func() {
	w, ok := ctx.Value(heldKey{}).(*http.ResponseController)
	if !ok {
		return func() {}
	}
	return func() { _ = w.Flush() }
}
