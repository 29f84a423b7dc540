package displays

import (
	"net/http"
	"strings"
	"testing"
)

func TestContentType(t *testing.T) {
	for kind, want := range map[string]string{
		"image/png":                         "image/png",
		"text/html":                         "text/html; charset=utf-8",
		"TEXT/HTML; charset=utf-7":          "text/html; charset=utf-8",
		"image/svg+xml":                     "image/svg+xml; charset=utf-8",
		"application/vnd.plotly.v1+json":    "application/vnd.plotly.v1+json",
		"text":                              "application/octet-stream",
		"":                                  "application/octet-stream",
		"text/html\r\nSet-Cookie: a=b":      "application/octet-stream",
		"multipart/x-mixed-replace; bounda": "application/octet-stream",
	} {
		if got := contentType(kind); got != want {
			t.Errorf("%q is sent as %q, want %q", kind, got, want)
		}
	}
}

// A kernel says of which type a display is.
func FuzzContentType(f *testing.F) {
	f.Add(`text/html; a="b"`)
	f.Fuzz(func(t *testing.T, kind string) {
		got := contentType(kind)
		h := http.Header{}
		h.Set("Content-Type", got)
		if got == "" || strings.ContainsAny(got, "\r\n\x00") {
			t.Errorf("%q is sent as %q", kind, got)
		}
	})
}
