package front

import (
	"context"
	"strings"

	"github.com/oklog/ulid/v2"
)

type requestIDKey struct{}

// RequestID is the id of the request that ctx belongs to; "" outside of one.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// withRequestID keeps the id that a caller or proxy gave, so that one id names
// a request on its whole way, unless it could be mistaken for something else
// in a log.
func withRequestID(ctx context.Context, given string) (context.Context, string) {
	id := given
	if !validRequestID(id) {
		id = strings.ToLower(ulid.Make().String())
	}
	return context.WithValue(ctx, requestIDKey{}, id), id
}

func validRequestID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.:", rune(c)) {
			return false
		}
	}
	return true
}
