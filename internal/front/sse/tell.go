package sse

import (
	"context"
	"iter"
	"net/http"
)

// Tell answers with what work tells while it does something, and with what it
// returns at the end. The answer begins with the first of these, or with a ping:
// the stream is nil when work failed before there was anything to tell. Errors
// are those of [Pump].
func Tell[T any](ctx context.Context, drain <-chan struct{}, w http.ResponseWriter, status int,
	work func(ctx context.Context, tell func(T)) (T, error), item func(s *Stream, output *Outputs, v T) error,
) (s *Stream, err error) {
	var output *Outputs
	open := func() (err error) {
		if s == nil {
			s, err = New(w, status)
			output = NewOutputs(s)
		}
		return err
	}
	source := func(ctx context.Context) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			wanted := true
			last, err := work(ctx, func(v T) { wanted = wanted && yield(v, nil) })
			if wanted {
				yield(last, err)
			}
		}
	}
	err = Pump(ctx, drain, source, PingEvery, func(v T) error {
		if err := open(); err != nil {
			return err
		}
		return item(s, output, v)
	}, func() error {
		if err := open(); err != nil {
			return err
		}
		return s.Ping()
	})
	return s, err
}
