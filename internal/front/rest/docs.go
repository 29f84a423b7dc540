package rest

import (
	_ "embed"
	"net/http"
	"sync"
)

// The page and its script render the document in the browser and load nothing
// from anywhere else.
//
//go:embed docs.html
var docsPage []byte

//go:embed docs.js
var docsScript []byte

func (d *door) docsRoutes() {
	document := sync.OnceValue(func() []byte {
		b, err := d.Document()
		if err != nil {
			panic(err) // the golden test encodes the same document
		}
		return b
	})
	d.Mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document()) // the client went away
	})
	d.Mux.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, _ = w.Write(docsPage) // the client went away
	})
	d.Mux.HandleFunc("GET /docs.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(docsScript) // the client went away
	})
}
