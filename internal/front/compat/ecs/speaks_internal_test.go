package ecs

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// TestClaimsExec: a command that is text is this dialect's, and whoever serves
// the request reads the same body as without the question.
func TestClaimsExec(t *testing.T) {
	d := &dialect{&httpapi.Server{Config: httpapi.Config{BodyLimit: 32}}}
	broken := errors.New("broken")
	for _, tt := range []struct {
		name, body, secret string
		end                error
		want               bool
	}{
		{"text", `{"cmd":"ls"}`, "", nil, true},
		{"a list", `{"cmd":["ls"]}`, "", nil, false},
		{"a list with the header", `{"cmd":["ls"]}`, "s", nil, true},
		{"no JSON", `{"cmd":"ls"`, "", nil, false},
		{"too long", `{"cmd":"` + strings.Repeat("a", 40) + `"}`, "", nil, false},
		{"it ends early", `{"cmd":"ls"}`, "", broken, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := io.Reader(strings.NewReader(tt.body))
			if tt.end != nil {
				body = io.MultiReader(body, iotest.ErrReader(tt.end))
			}
			r := httptest.NewRequest("POST", "/sandbox/a/exec", body)
			r.Header.Set(SecretHeader, tt.secret)
			if got := d.claimsExec(r); got != tt.want {
				t.Errorf("claims = %v, want %v", got, tt.want)
			}
			data, err := io.ReadAll(r.Body)
			if string(data) != tt.body || !errors.Is(err, tt.end) {
				t.Errorf("the body is %q then, %v", data, err)
			}
		})
	}
}
