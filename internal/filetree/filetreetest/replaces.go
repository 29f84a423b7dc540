package filetreetest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// replaces is the condition that a file has a content still.
func replaces(content string) sandbox.FileWrite {
	sum := sha256.Sum256([]byte(content))
	return sandbox.FileWrite{Replaces: sum[:]}
}

// testReplaces: a change by somebody else is never lost, also when all come at once.
func testReplaces(t *testing.T, e Env) {
	write := func(name, content string, w sandbox.FileWrite) error {
		_, err := e.Write(t.Context(), name, strings.NewReader(content), w)
		return err
	}
	e.put(t, "/workspace/f", "one")
	if err := write("/workspace/f", "two", replaces("one")); err != nil {
		t.Fatalf("the first write: %v", err)
	}
	wantKind(t, "a write of what has changed", write("/workspace/f", "three", replaces("one")), errs.Conflict)
	wantKind(t, "a write of what is not there", write("/workspace/none", "x", replaces("")), errs.Conflict)
	appending := replaces("two")
	appending.Append = true
	wantKind(t, "an append that replaces", write("/workspace/f", "x", appending), errs.Invalid)
	if got := e.get(t, "/workspace/f"); got != "two" || len(e.list(t, "/workspace", false)) != 1 {
		t.Errorf("the file holds %q, and there is %v", got, e.list(t, "/workspace", false))
	}

	const writers = 8
	e.put(t, "/workspace/counter", "")
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for {
				was, err := e.read(t, "/workspace/counter", 0, -1)
				if err == nil {
					err = write("/workspace/counter", was+fmt.Sprintf("%d\n", i), replaces(was))
				}
				if err == nil {
					return
				}
				if !errors.Is(err, errs.Conflict) {
					t.Errorf("writer %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := strings.Count(e.get(t, "/workspace/counter"), "\n"); n != writers {
		t.Errorf("%d changes are left of %d", n, writers)
	}
}
