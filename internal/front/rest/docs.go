package rest

import (
	_ "embed"
	"net/http"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// The page and its script render the document in the browser and load nothing
// from anywhere else.
//
//go:embed docs.html
var docsPage []byte

//go:embed docs.js
var docsScript []byte

// guide says to models how the API is used, see https://llmstxt.org.
//
//go:embed llms.txt
var guide string

func (d *door) docsRoutes() {
	text := httpapi.Media("text/plain", &huma.Schema{Type: huma.TypeString})
	for id, path := range map[string]string{"guide": "/llms.txt", "guide-sandboxed": "/llm.txt"} {
		d.plain(id, path, "How the API is used, for language models", text, func(w http.ResponseWriter, _ *http.Request) {
			writeText(w, guide)
		})
	}
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
