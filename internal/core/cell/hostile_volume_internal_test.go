//go:build !race

package cell

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestHostileRecords(t *testing.T) {
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `,"x/t%d":1`, i)
	}
	big := strings.Repeat("x", 5<<20)
	tests := []struct {
		name string
		in   string
		// outputs is how many displays come of it, with the one that says what
		// is missing.
		outputs int
		left    bool
	}{
		{"no JSON", "nonsense\n", 1, true},
		{"no record", "[]\n", 1, true},
		{"unknown record", `{"future":{"a":1}}` + "\n", 0, false},
		{"empty lines", "\n \n\r\n", 0, false},
		{"NULs", "\x00\x00\n", 1, true},
		{"deep", `{"display":{"data":{"application/json":` + deep + "}}}\n", 1, true},
		{"deep garbage", deep + "\n", 1, true},
		{"a number out of range", `{"result":{"execution_count":1e300,"data":{}}}` + "\n", 1, true},
		{"no data", `{"display":{}}` + "\n", 1, false},
		{"data of another kind", `{"display":{"data":[1]}}` + "\n", 1, false},
		{"null", `{"display":null}` + "\n", 0, false},
		{"too many types", `{"display":{"data":{"text/plain":"a"` + many.String() + "}}}\n", 1, false},
		{"a line without end", strings.Repeat("x", maxRecord+10), 0, false},
		{"a line that is too long", `{"display":{"data":{"a/b":"` + strings.Repeat("x", maxRecord) + `"}}}` + "\n", 1, true},
		{"too much together", strings.Repeat(`{"display":{"data":{"text/plain":"`+big+`"}}}`+"\n", 10), 7, true},
		{"too many", strings.Repeat(`{"display":{"data":{"text/plain":"a"}}}`+"\n", 3000), maxShown + 1, true},
		{"too many of one id", strings.Repeat(`{"display":{"data":{"text/plain":"a"},"display_id":"i"}}`+"\n", 3000), maxShown + 1, true},
		{"an update that is too large everywhere", strings.Repeat(`{"display":{"data":{},"display_id":"i"}}`+"\n", 900) +
			`{"display":{"data":{"text/plain":"` + big + `"},"display_id":"i","update":true}}` + "\n", 901, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := assemble(ended(sandbox.EndExited, 0), DefaultCaps(), richText(tt.in))
			if len(e.Outputs) != tt.outputs {
				t.Fatalf("there are %d outputs, want %d", len(e.Outputs), tt.outputs)
			}
			if tt.left && !strings.Contains(string(e.Outputs[len(e.Outputs)-1].Data["text/plain"]), "not part of this answer") {
				t.Errorf("nothing says what is missing: %.200s", e.Outputs[len(e.Outputs)-1].Data)
			}
			total := 0
			for _, d := range e.Outputs {
				total += d.size()
				if len(d.Data) > maxTypes {
					t.Errorf("a value has %d types", len(d.Data))
				}
			}
			if total > maxShownBytes+1000 {
				t.Errorf("the outputs take %d bytes", total)
			}
			if e.Error != nil || e.Result != nil {
				t.Errorf("error %v, result %v, want none", e.Error, e.Result)
			}
		})
	}
}
