package tools

import (
	"encoding/json"
	"testing"

	"github.com/cubbyhq/cubby/internal/kernel"
)

func bundle(pairs ...string) kernel.Bundle {
	b := kernel.Bundle{}
	for i := 0; i < len(pairs); i += 2 {
		b[pairs[i]], _ = json.Marshal(pairs[i+1])
	}
	return b
}

func TestPick(t *testing.T) {
	for _, tt := range []struct {
		b          kernel.Bundle
		mime, data string
	}{
		{bundle("text/plain", "x"), "text/plain", "x"},
		{bundle("text/plain", "x", "image/png", "p"), "image/png", "p"},
		{bundle("image/png", "p", "image/svg+xml", "s"), "image/svg+xml", "s"},
		{bundle("image/png", "p", "text/html", "h", "image/svg+xml", "s"), "text/html", "h"},
		{bundle("video/mp4", "v", "audio/ogg", "o", "audio/mpeg", "m", "audio/wav", "w"), "audio/wav", "w"},
		{bundle("application/x-own", "o", "text/plain", "x"), "application/x-own", "o"},
		{kernel.Bundle{"application/json": json.RawMessage(`{"a":[1]}`)}, "application/json", `{"a":[1]}`},
		{nil, "", ""},
	} {
		if mime, data := pick(tt.b); mime != tt.mime || data != tt.data {
			t.Errorf("%v: picked %q %q, want %q %q", tt.b, mime, data, tt.mime, tt.data)
		}
	}
}
