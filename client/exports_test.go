package client_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client"
)

func TestExportsAndImports(t *testing.T) {
	var requests []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		switch r.URL.Path {
		case "/v1/sandboxes/a/exports/download":
			_, _ = w.Write([]byte("PK"))
		case "/v1/sandboxes/a/exports":
			answer(w, 200, `{"files":[{"session_id":"a","path":"/workspace/f","success":true,"size":3,"created_at":"2026-01-02T03:04:05Z"}]}`)
		default:
			answer(w, 200, `{"success":false,"files":[{"source":"b:f","destination":"","success":false,"error":"no"}],"error":"1 of 1 files failed"}`)
		}
	})
	files := c.Files("a")
	given, err := files.Export(t.Context(), "f", "d/")
	if err != nil || len(given) != 1 || !given[0].Success || given[0].Size != 3 {
		t.Errorf("Export = %+v, %v", given, err)
	}
	list, err := files.Exports(t.Context())
	if err != nil || len(list) != 1 || list[0].CreatedAt.IsZero() {
		t.Errorf("Exports = %+v, %v", list, err)
	}
	r, err := files.OpenExport(t.Context(), "d", "zip")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); string(b) != "PK" || err != nil {
		t.Errorf("OpenExport gives %q, %v", b, err)
	}
	got, err := files.Import(t.Context(),
		client.Import{SessionID: "b", Path: "f"}, client.Import{Source: "/srv/x", Destination: "y"}, client.Import{Content: []byte{}, Destination: "z"})
	if err != nil || len(got) != 1 || got[0].Success || got[0].Error != "no" {
		t.Errorf("Import = %+v, %v", got, err)
	}
	want := []string{
		`POST /v1/sandboxes/a/exports {"files":[{"source":"f"},{"source":"d/"}]}`,
		`GET /v1/sandboxes/a/exports `,
		`GET /v1/sandboxes/a/exports/download?format=zip&path=d `,
		`POST /v1/sandboxes/a/imports {"files":[{"session_id":"b","path":"f"},{"source":"/srv/x","destination":"y"},{"file_content":"","encoding":"base64","destination":"z"}]}`,
	}
	if diff := cmp.Diff(want, requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if _, err := json.Marshal(given); err != nil {
		t.Error(err)
	}
}

func TestThreads(t *testing.T) {
	var requests []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.RequestURI())
		switch r.Method {
		case http.MethodDelete:
			answer(w, 200, `{"destroyed":2}`)
		default:
			answer(w, 200, `{"threads":[{"thread":"a b","sandboxes":2,"running":1}],"sandboxes":[]}`)
		}
	})
	threads, err := c.Threads(t.Context())
	if err != nil || len(threads) != 1 || threads[0].Thread != "a b" || threads[0].Running != 1 {
		t.Errorf("Threads = %+v, %v", threads, err)
	}
	if n, err := c.DestroyThread(t.Context(), "a b/c"); n != 2 || err != nil {
		t.Errorf("DestroyThread = %d, %v", n, err)
	}
	for range c.List(t.Context(), client.ListOptions{Thread: "a b"}) {
	}
	if want := []string{"GET /v1/threads", "DELETE /v1/threads/a%20b%2Fc", "GET /v1/sandboxes?thread=a+b"}; !cmp.Equal(requests, want) {
		t.Errorf("requests = %q, want %q", requests, want)
	}
}
