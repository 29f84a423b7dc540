package items

import (
	"encoding/json"
	"testing"

	"github.com/cubbyhq/cubby/internal/conversation"
)

// FuzzSearch: no filter, query or path of fields breaks the search of any value.
func FuzzSearch(f *testing.F) {
	f.Add(`{"a":[{"$near":1}]}`, `{"a":[{"b":1}]}`, "a b", `["a[*].b"]`)
	f.Add(`{"a":{"$in":[1],"$gt":"0"},"b":{"c":[1,{"d":{"$ne":null}}]}}`, `{"a":1,"b":{"c":[1,{"d":2}]}}`, "é", `["*","$","a[-1]","x[","[9]."]`)
	f.Fuzz(func(t *testing.T, want, value, text, index string) {
		var raw map[string]json.RawMessage
		if json.Unmarshal([]byte(want), &raw) != nil {
			return
		}
		parsed, err := parseFilter(raw)
		if err != nil {
			parsed = filter{}
		}
		i := conversation.Item{Value: json.RawMessage(value)}
		if i.Fields, err = fieldsOf(json.RawMessage(index)); err != nil {
			i.Fields = nil
		}
		fields := fieldsIn(i)
		parsed.matches(fields)
		words, err := parseQuery(text)
		if err != nil {
			return
		}
		if score := words.score(i, fields); score < 0 || score > 1 {
			t.Errorf("score %f", score)
		}
	})
}
