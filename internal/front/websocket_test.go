package front_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestTokenOfAPage: a page cannot set headers of a WebSocket, so the token may
// be among the subprotocols there, and only there.
func TestTokenOfAPage(t *testing.T) {
	h, _ := door(t, "me:right-token-1234", func(http.ResponseWriter, *http.Request) {})
	encode := base64.RawURLEncoding.EncodeToString
	for _, tt := range []struct {
		name, upgrade, protocol string
		want                    int
	}{
		{"right", "websocket", "cubby.terminal.v1, cubby.token." + encode([]byte("right-token-1234")), 200},
		{"wrong", "websocket", "cubby.terminal.v1, cubby.token." + encode([]byte("wrong-token-1234")), 401},
		{"not encoded", "websocket", "cubby.token.right!token", 401},
		{"empty", "websocket", "cubby.token.", 401},
		{"none", "websocket", "cubby.terminal.v1", 401},
		{"no WebSocket", "", "cubby.token." + encode([]byte("right-token-1234")), 401},
	} {
		r := httptest.NewRequest("GET", "/box/x", nil)
		r.Header.Set("Connection", "keep-alive, Upgrade")
		r.Header.Set("Upgrade", tt.upgrade)
		r.Header.Set("Sec-WebSocket-Version", "13")
		r.Header.Set("Sec-WebSocket-Protocol", tt.protocol)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, w.Code, tt.want)
		}
	}
}
