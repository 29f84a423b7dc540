package rest

import (
	_ "embed"
	"encoding/json"
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

func (d *Door) docsRoutes() {
	document := sync.OnceValue(func() []byte {
		b, err := d.Document()
		if err != nil {
			panic(err) // the golden test encodes the same document
		}
		return b
	})
	d.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(document()) // the client went away
	})
	d.mux.HandleFunc("GET /docs", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		_, _ = w.Write(docsPage) // the client went away
	})
	d.mux.HandleFunc("GET /docs.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(docsScript) // the client went away
	})
}

// Document is the OpenAPI document.
func (d *Door) Document() ([]byte, error) { return json.MarshalIndent(d.api.OpenAPI(), "", "  ") }
