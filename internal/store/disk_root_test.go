//go:build root

package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/disktest"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestFullHostDisk fills a real file system: writes are refused with a reason,
// reads go on, nothing acknowledged is lost, and writes go on when there is
// room.
func TestFullHostDisk(t *testing.T) {
	dir, makeRoom := disktest.Small(t, "4m", 2<<20)
	path := filepath.Join(dir, "cubby.db")
	s := open(t, path, newClock())
	var stored []sandbox.UID
	var refused error
	for i := 0; refused == nil && i < 10_000; i++ {
		b := box(fmt.Sprint("box-", i))
		b.Spec.Metadata = map[string]string{"ballast": strings.Repeat("x", 10_000)}
		if refused = s.CreateSandbox(t.Context(), b); refused == nil {
			stored = append(stored, b.UID)
		}
	}
	if !errors.Is(refused, errs.Exhausted) && !errors.Is(refused, errs.Unavailable) {
		t.Fatalf("CreateSandbox on a full disk = %v, want exhausted or unavailable", refused)
	}
	t.Logf("refused after %d: %v", len(stored), refused)
	readable := func() {
		t.Helper()
		for _, uid := range stored {
			if _, err := s.SandboxByUID(t.Context(), uid); err != nil {
				t.Fatalf("SandboxByUID: %v", err)
			}
		}
	}
	readable()
	makeRoom()
	b := create(t, s, box("after"))
	stored = append(stored, b.UID)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, newClock())
	readable()
}

// TestFullHostDiskUnderEvents: what was acknowledged is there once and in
// order, what was refused is not, and the cursors go on.
func TestFullHostDiskUnderEvents(t *testing.T) {
	dir, makeRoom := disktest.Small(t, "4m", 2<<20)
	path := filepath.Join(dir, "cubby.db")
	s := open(t, path, newClock())
	var stored []int64
	add := func() error {
		payload := fmt.Sprintf(`{"n":%d,"ballast":%q}`, len(stored), strings.Repeat("x", 5000))
		cursor, err := s.AppendEvent(t.Context(), sandbox.Event{Box: "a", Kind: "k", Payload: []byte(payload)})
		if err == nil {
			stored = append(stored, cursor)
		}
		return err
	}
	var refused error
	for i := 0; refused == nil && i < 10_000; i++ {
		refused = add()
	}
	if !errors.Is(refused, errs.Exhausted) && !errors.Is(refused, errs.Unavailable) {
		t.Fatalf("AppendEvent on a full disk = %v, want exhausted or unavailable", refused)
	}
	makeRoom()
	for range 3 {
		if err := add(); err != nil {
			t.Fatalf("AppendEvent when there is room again = %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path, newClock())
	var got []int64
	for {
		var after int64
		if len(got) > 0 {
			after = got[len(got)-1]
		}
		events, err := s.Events(t.Context(), "a", after, 0)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if want := fmt.Sprintf(`{"n":%d,`, len(got)); !strings.HasPrefix(string(e.Payload), want) {
				t.Fatalf("event %d begins with %.20s", len(got), e.Payload)
			}
			got = append(got, e.Cursor)
		}
	}
	if !slices.Equal(got, stored) {
		t.Errorf("%d events are there, %d were acknowledged", len(got), len(stored))
	}
}
