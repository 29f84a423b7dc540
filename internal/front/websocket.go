package front

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
)

// tokenProtocol begins the subprotocol with which a page presents its token:
// the only thing of a WebSocket's request that a browser lets it choose beside
// the URL, which ends in logs. The token follows in unpadded base64url.
const tokenProtocol = "cubby.token."

// IsWebSocket reports whether a request wants to become a WebSocket.
func IsWebSocket(h http.Header) bool {
	return hasToken(h, "Connection", "upgrade") && hasToken(h, "Upgrade", "websocket") && h.Get("Sec-Websocket-Version") == "13"
}

func hasToken(h http.Header, name, want string) bool {
	for _, token := range list(h, name) {
		if strings.EqualFold(token, want) {
			return true
		}
	}
	return false
}

// list splits a header that holds a list.
func list(h http.Header, name string) []string {
	var all []string
	for _, line := range h.Values(name) {
		for token := range strings.SplitSeq(line, ",") {
			all = append(all, strings.TrimSpace(token))
		}
	}
	return all
}

// webSocketSecret returns the token among the subprotocols of a request that
// wants to become a WebSocket.
func webSocketSecret(h http.Header) []string {
	if !IsWebSocket(h) {
		return nil
	}
	for _, protocol := range list(h, "Sec-Websocket-Protocol") {
		encoded, ok := strings.CutPrefix(protocol, tokenProtocol)
		if !ok {
			continue
		}
		secret, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil {
			return []string{""} // a token that is none
		}
		return []string{string(secret)}
	}
	return nil
}

// WaitFor returns when all connections have ended that a door serves itself, or when
// ctx ends.
func WaitFor(ctx context.Context, conns *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		conns.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
