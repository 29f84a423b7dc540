package store

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
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
		{Cursor: cursors[0], Box: a, Kind: "k0", Actor: "me", Status: sandbox.ExecDone, Payload: []byte(`{"n":1}`), Time: c.Now()},
		{Cursor: cursors[2], Box: a, Kind: "k2", Actor: "me", Status: sandbox.ExecDone, Payload: []byte(`{"n":1}`), Time: c.Now()},
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

func TestEventsByKind(t *testing.T) {
	s, _ := fresh(t)
	a := sandbox.NewUID()
	all := []sandbox.Event{
		{Kind: "exec.started", Seq: 1, Status: sandbox.ExecRunning},
		{Kind: "exec.finished", Seq: 1, Status: sandbox.ExecError, Result: []byte(`{"code":3}`)},
		{Kind: "git.clone", Seq: 2}, {Kind: "github.seen"}, {Kind: "git.log", Seq: 3},
	}
	for _, e := range all {
		e.Box = a
		if _, err := s.AppendEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		kinds []string
		want  []string
	}{
		{nil, []string{"exec.started", "exec.finished", "git.clone", "github.seen", "git.log"}},
		{[]string{"exec.finished"}, []string{"exec.finished"}},
		{[]string{"git.*"}, []string{"git.clone", "git.log"}},
		{[]string{"git.*", "exec.started"}, []string{"exec.started", "git.clone", "git.log"}},
		{[]string{"*"}, []string{"exec.started", "exec.finished", "git.clone", "github.seen", "git.log"}},
		{[]string{"%", "git_log", "' OR 1=1 --"}, nil},
	} {
		for _, box := range []sandbox.UID{a, ""} {
			events, err := s.Events(t.Context(), box, 0, 0, tt.kinds...)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range events {
				got = append(got, e.Kind)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("kinds %q (-want +got):\n%s", tt.kinds, diff)
			}
		}
	}
	events, err := s.Events(t.Context(), a, 1, 1)
	if err != nil || len(events) != 1 || events[0].Seq != 1 || events[0].Status != sandbox.ExecError || string(events[0].Result) != `{"code":3}` {
		t.Errorf("Events = %+v, %v", events, err)
	}
}

// TestWatchEvents has every way in which events are written tell readers.
func TestWatchEvents(t *testing.T) {
	s, c := fresh(t)
	b := create(t, s, box("a"))
	other := create(t, s, box("b"))
	more, stop := s.WatchEvents(b.UID)
	told := func() bool {
		select {
		case <-more:
			return true
		default:
			return false
		}
	}
	fact := sandbox.Event{Box: b.UID, Kind: "k"}
	var seq int64
	for what, act := range map[string]func() error{
		"AppendEvent": func() error { _, err := s.AppendEvent(t.Context(), fact); return err },
		"UpdateSpec": func() error {
			_, err := s.UpdateSpec(t.Context(), b.UID, func(*sandbox.Spec) error { return nil }, fact)
			return err
		},
		"CreateExec": func() (err error) {
			seq, err = s.CreateExec(t.Context(), sandbox.Exec{UID: sandbox.NewUID(), Box: b.UID}, fact)
			return err
		},
	} {
		if told() {
			t.Errorf("%s: told before", what)
		}
		if err := act(); err != nil {
			t.Fatal(err)
		}
		if !told() || told() {
			t.Errorf("%s: not told once", what)
		}
	}
	if events, err := s.Events(t.Context(), b.UID, 0, 0); err != nil || len(events) != 3 || events[0].Seq+events[1].Seq+events[2].Seq != seq {
		t.Errorf("Events = %+v, %v, want one with seq %d", events, err, seq)
	}
	move(t, s, b.UID, sandbox.Stopped, Change{Why: asked, Events: []sandbox.Event{fact}})
	if !told() {
		t.Error("Move: not told")
	}
	if _, err := s.AppendEvent(t.Context(), sandbox.Event{Box: other.UID, Kind: "k", Time: c.Now()}); err != nil || told() {
		t.Errorf("told of another's event, %v", err)
	}
	stop()
	if _, err := s.AppendEvent(t.Context(), fact); err != nil || told() || s.EventNotices(b.UID) != 0 {
		t.Errorf("told after the end of the watch, %v, %d", err, s.EventNotices(b.UID))
	}
}

// TestEventsOfAStoreThatCannotBeWritten: a clear error, and nothing of the
// event afterwards.
func TestEventsOfAStoreThatCannotBeWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cubby.db")
	s := open(t, path, newClock())
	other := raw(t, path)
	other.SetMaxOpenConns(1)
	add := func() error {
		_, err := s.AppendEvent(t.Context(), sandbox.Event{Box: "a", Kind: "k"})
		return err
	}
	command := func(db *sql.DB, text string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name        string
		close, open func()
	}{
		{"locked", func() { command(other, "BEGIN IMMEDIATE") }, func() { command(other, "ROLLBACK") }},
		{"read-only", func() { command(s.engine.Write, "PRAGMA query_only=1") }, func() { command(s.engine.Write, "PRAGMA query_only=0") }},
	} {
		before, err := s.Events(t.Context(), "a", 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		tt.close()
		err = add()
		if info := errs.Public(err); !errors.Is(err, errs.Unavailable) || info.Message == "" {
			t.Errorf("%s: AppendEvent = %v", tt.name, err)
		}
		if events, err := s.Events(t.Context(), "a", 0, 0); err != nil || len(events) != len(before) {
			t.Errorf("%s: Events = %d, %v", tt.name, len(events), err)
		}
		tt.open()
		if err := add(); err != nil {
			t.Errorf("%s: AppendEvent afterwards = %v", tt.name, err)
		}
		if events, err := s.Events(t.Context(), "a", 0, 0); err != nil || len(events) != len(before)+1 {
			t.Errorf("%s: Events afterwards = %d, %v", tt.name, len(events), err)
		}
	}
}
