package agentapi

import (
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// FuzzRequests: whatever a body is, it is read or refused as the client's mistake.
func FuzzRequests(f *testing.F) {
	for _, seed := range []string{
		`{"assistant_id":"agent","input":{"messages":[]},"stream_mode":["values"],"config":{"configurable":{"a":1}}}`,
		`{"assistant_id":"agent","command":{"resume":[]},"stream_mode":"updates","interrupt_before":"*","checkpoint":{"configurable":{"checkpoint_id":"x"}}}`,
		`{"before":{"configurable":{"checkpoint_id":"x"}},"limit":3,"select":["a"],"sort_by":"status"}`, `{"before":"x"}`, `{"stream_mode":[null]}`, `null`, `[`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var run RunCreate
		err := front.DecodeLoose(data, &run)
		if err == nil {
			if err = run.check(); err == nil {
				run.run(false)
			}
		}
		var search threadSearch
		var history struct {
			Before before `json:"before"`
		}
		for _, err := range []error{err, front.DecodeLoose(data, &search), search.check("status"), front.DecodeLoose(data, &history)} {
			if err != nil && errs.KindOf(err) != errs.Invalid {
				t.Errorf("%q: %v", data, err)
			}
		}
	})
}
