package agent

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestWhoIsNotBackInTimeIsNotWaitedFor: of the runs that an earlier daemon left those end
// that nobody follows and that end with their clients.
func TestWhoIsNotBackInTimeIsNotWaitedFor(t *testing.T) {
	s := New(Config{Returning: 1})
	ended := map[sandbox.UID]bool{}
	for uid, f := range map[sandbox.UID]followers{
		"gone": {cancelOnLeave: true, awaited: true},
		"back": {cancelOnLeave: true, awaited: true, here: 1},
		"free": {},
	} {
		s.active[uid] = &execution{followers: f, cancel: func(error) { ended[uid] = true }}
		s.queued[string(uid)] = &waiting{followers: f}
		if f.left() {
			t.Errorf("%s is to end before", uid)
		}
	}
	s.endAbandoned()
	for _, uid := range []sandbox.UID{"gone", "back", "free"} {
		want := uid == "gone"
		if queued := s.queued[string(uid)].followers.left(); ended[uid] != want || queued != want {
			t.Errorf("%s ends: %v, and when it waits for its turn: %v, want %v", uid, ended[uid], queued, want)
		}
	}
	// Who came back may leave.
	back := s.active["back"]
	back.followers.here--
	if !back.followers.left() {
		t.Error("a run goes on that its client left again")
	}
}
