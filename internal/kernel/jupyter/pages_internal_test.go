package jupyter

import (
	"encoding/json"
	"testing"
)

// TestHelpIsShown: what ?name answers comes with the reply, and nothing else
// that is there is a display.
func TestHelpIsShown(t *testing.T) {
	for payload, want := range map[string]string{
		`[{"source":"page","data":{"text/plain":"Signature: len(obj)"},"start":0}]`: `[{"display":{"data":{"text/plain":"Signature: len(obj)"}}}]`,
		`[{"source":"ask_exit","keepkernel":false},{"source":"page","data":{}}]`:    `null`,
		`[{"source":"set_next_input","text":"x"}]`:                                  `null`,
		`{"source":"page"}`: `null`,
		`[{"source":"page"`: `null`,
		`[{"source":"page","data":{"text/plain":"a"}},{"source":"page","data":{"text/html":"b"}}]`: `[{"display":{"data":{"text/plain":"a"}}},{"display":{"data":{"text/html":"b"}}}]`,
		``: `null`,
	} {
		got, err := json.Marshal(pages(json.RawMessage(payload)))
		if err != nil || string(got) != want {
			t.Errorf("pages(%s) = %s, %v, want %s", payload, got, err, want)
		}
	}
}
