package store

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestEvents(t *testing.T) {
	s, c := fresh(t)
	a, b := sandbox.NewUID(), sandbox.NewUID()
	var cursors []int64
	for i, box := range []sandbox.UID{a, b, a} {
		cursor, err := s.AppendEvent(t.Context(), sandbox.Event{Box: box, Kind: fmt.Sprint("k", i), Actor: "me", Payload: []byte(`{"n":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		cursors = append(cursors, cursor)
	}
	got, err := s.Events(t.Context(), a, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []sandbox.Event{
		{Cursor: cursors[0], Box: a, Kind: "k0", Actor: "me", Payload: []byte(`{"n":1}`), Time: c.Now()},
		{Cursor: cursors[2], Box: a, Kind: "k2", Actor: "me", Payload: []byte(`{"n":1}`), Time: c.Now()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Events of one (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		box   sandbox.UID
		after int64
		limit int
		want  int
	}{{"", 0, 0, 3}, {"", cursors[0], 0, 2}, {"", 0, 2, 2}, {a, cursors[0], 0, 1}, {a, cursors[2], 0, 0}} {
		got, err := s.Events(t.Context(), tt.box, tt.after, tt.limit)
		if err != nil || len(got) != tt.want {
			t.Errorf("Events(%q, %d, %d) = %d, %v, want %d", tt.box, tt.after, tt.limit, len(got), err, tt.want)
		}
	}
}
