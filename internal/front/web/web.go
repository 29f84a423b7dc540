// Package web is the page at /web: a terminal in a browser. It is static and
// needs no token itself; what it does goes through the API with the token of
// whoever sits before it. Everything is embedded, and the page can load
// nothing from elsewhere.
package web

import (
	"embed"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var static embed.FS

// The style of xterm.js is made by its script, so styles may be inline;
// scripts may not.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".txt":  "text/plain; charset=utf-8",
}

// Path reports whether a path is the page's.
func Path(p string) bool { return p == "/web" || strings.HasPrefix(p, "/web/") }

// Register puts the page and its files on a mux.
func Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /web", serve("index.html"))
	mux.HandleFunc("GET /web/{$}", serve("index.html"))
	files, err := static.ReadDir("static")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, f := range files {
		mux.HandleFunc("GET /web/"+f.Name(), serve(f.Name()))
	}
}

func serve(name string) http.HandlerFunc {
	content, err := static.ReadFile("static/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // a newer daemon has a newer page
		_, _ = w.Write(content)            // the client went away
	}
}
