package proc

import (
	"testing"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

// A cancel that came between the exit of a command and the note of what it left
// found nothing to end.
func TestLeftByACommandThatHasJustEnded(t *testing.T) {
	r := New(t.Context(), Config{})
	e := r.NewExec("bomb")
	r.enter(e, &plainTree{})
	if left := r.Left("bomb"); left != nil {
		t.Errorf("a command that runs counts as one that left something")
	}
	e.Finish(&guestv1.ExecExit{})
	if left := r.Left("bomb"); left != e {
		t.Errorf("Left = %v, want the command", left)
	}
	if left := r.Left(""); left != nil {
		t.Errorf("Left without a uid = %v", left)
	}
}
