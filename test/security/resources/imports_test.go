package resources_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// halfAnImport begins an import that says it has more than it sends.
func (d *daemon) halfAnImport(token, path string) io.Reader {
	d.t.Helper()
	body := `{"files":[{"file_content":"` + strings.Repeat("A", 64<<10)
	return d.send(token, "POST "+path+" HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000000", body)
}

// TestHalfSentImports: eight of them, whose ends do not come, were all that the daemon
// took, of everybody.
func TestHalfSentImports(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for token, id := range map[string]string{acme: "box", other: "others"} {
		if _, err := d.client(token).Create(ctx, client.CreateOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	crowd(64, func() { d.halfAnImport(acme, "/v1/sandboxes/box/imports") })
	crowd(64, func() { d.halfAnImport(acme, "/sandbox/box/fs") })
	for token, id := range map[string]string{acme: "box", other: "others"} {
		got, err := d.client(token).Files(id).Import(ctx, client.Import{Source: "a", Content: []byte("whole")})
		if err != nil || len(got) != 1 || !got[0].Success {
			t.Errorf("an import of %s meanwhile: %+v, %v", id, got, err)
		}
	}
	// Whether there is such a sandbox, and whether it is the caller's, is known before
	// the body.
	for _, path := range []string{"/v1/sandboxes/nobody/imports", "/v1/sandboxes/others/imports", "/sandbox/nobody/fs", "/sandbox/others/fs"} {
		head := make([]byte, len("HTTP/1.1 404"))
		if _, err := io.ReadFull(d.halfAnImport(acme, path), head); err != nil || string(head) != "HTTP/1.1 404" {
			t.Errorf("half an import to %s: %q, %v", path, head, err)
		}
	}
}

// TestWrongTokens: whoever tries them is told to wait, in the words of each interface, and
// who has a right one at the same address is not held up.
func TestWrongTokens(t *testing.T) {
	d := start(t)
	// What each of three interfaces says of it: /v1, ecs-sandbox's and sandboxed's.
	codes := map[string]string{"/v1/sandboxes": `"quota_exceeded"`, "/sandbox/box/history": `"too_many_requests"`, "/sandboxes": "too many wrong tokens"}
	told := make(map[string]bool)
	ask := func(path, token string) (int, []byte) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: 429 without Retry-After", path)
		}
		return res.StatusCode, body
	}
	for range 200 {
		for path, code := range codes {
			status, body := ask(path, "guess")
			switch {
			case status == http.StatusTooManyRequests && bytes.Contains(body, []byte(code)):
				told[path] = true
			case status != http.StatusUnauthorized:
				t.Fatalf("%s: %d, %s", path, status, body)
			}
		}
	}
	if len(told) != len(codes) {
		t.Errorf("only %v said that there were too many", told)
	}
	if status, body := ask("/v1/sandboxes", acme); status != http.StatusOK {
		t.Errorf("a right token meanwhile: %d, %s", status, body)
	}
}
