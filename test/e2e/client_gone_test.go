package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// call sends a request and returns the status and the body.
func call(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func sandboxOn(t *testing.T) (url string) {
	t.Helper()
	d := daemontest.Start(t, daemontest.Options{})
	if status, body := call(t, "POST", d.URL+"/v1/sandboxes", `{"id":"a"}`); status != http.StatusCreated {
		t.Fatalf("create = %d %s", status, body)
	}
	return d.URL + "/v1/sandboxes/a"
}

// TestStreamIsLive: the first bytes arrive while the command still waits for
// the client to have seen them.
func TestStreamIsLive(t *testing.T) {
	t.Parallel()
	box := sandboxOn(t)
	res, err := http.Post(box+"/exec", "", strings.NewReader(`{"cmd":"echo first; while test ! -e seen; do sleep 0.02; done; echo second","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), "first") {
	}
	if status, body := call(t, "PUT", box+"/files?path=seen", "x"); status != http.StatusOK {
		t.Fatalf("write = %d %s", status, body)
	}
	var rest strings.Builder
	for lines.Scan() {
		rest.WriteString(lines.Text())
	}
	if got := rest.String(); !strings.Contains(got, "second") || !strings.Contains(got, "event: exit") {
		t.Errorf("after the first line came %q", got)
	}
}

// TestClientGoneWhileACommandRuns: for every way to wait for a command, leaving
// does not touch it.
func TestClientGoneWhileACommandRuns(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, path, body string }{
		{"waiting", "/v1/sandboxes/a/exec", `{"cmd":"touch started; while test ! -e go; do sleep 0.02; done; echo went on"}`},
		{"streaming", "/v1/sandboxes/a/exec", `{"cmd":"touch started; while test ! -e go; do sleep 0.02; done; echo went on","stream":true}`},
		{"sandboxed waiting", "/sandbox/a/exec", `{"cmd":["sh","-c","touch started; while test ! -e go; do sleep 0.02; done; echo went on"]}`},
		{"sandboxed streaming", "/sandbox/a/exec", `{"cmd":["sh","-c","touch started; while test ! -e go; do sleep 0.02; done; echo went on"],"stream":true}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			box := sandboxOn(t)
			base := strings.TrimSuffix(box, "/v1/sandboxes/a")
			ctx, leave := context.WithCancel(context.Background())
			req, err := http.NewRequestWithContext(ctx, "POST", base+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			left := make(chan error, 1)
			go func() {
				res, err := http.DefaultClient.Do(req)
				if err == nil {
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
				left <- err
			}()
			eventually(t, time.Minute, "the command runs", func() bool {
				status, _ := call(t, "GET", box+"/files/stat?path=started", "")
				return status == http.StatusOK
			})
			leave()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Fatalf("the request ended with %v before the client left", err)
			}
			if _, body := call(t, "GET", box+"/execs/1", ""); strings.Contains(body, `"finished_at"`) {
				t.Errorf("after the client left: %s", body)
			}
			call(t, "PUT", box+"/files?path=go", "x")
			if _, body := call(t, "GET", box+"/execs/1?wait_seconds=30", ""); !strings.Contains(body, `"stdout":"went on\n"`) || !strings.Contains(body, `"reason":"exited"`) {
				t.Errorf("the command ended as %s", body)
			}
		})
	}
}

// TestClientGoneMidUpload: the file keeps its old content, and nothing is left
// beside it.
func TestClientGoneMidUpload(t *testing.T) {
	t.Parallel()
	box := sandboxOn(t)
	call(t, "PUT", box+"/files?path=f", "old")
	for _, path := range []string{"/files?path=f", "/files?path=new/f&parents=true", "/files/archive?path=tree"} {
		broken := io.MultiReader(bytes.NewReader(make([]byte, 3<<20)), failing{})
		req, err := http.NewRequest("PUT", box+path, broken)
		if err != nil {
			t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode < 300 {
				t.Errorf("PUT %s of a broken body = %s", path, res.Status)
			}
		}
	}
	if _, body := call(t, "GET", box+"/files/content?path=f", ""); body != "old" {
		t.Errorf("the file holds %d bytes, want the old ones", len(body))
	}
	// The daemon notices a moment after the client: wait for its last trace.
	var listing struct {
		Entries []struct {
			Path, Type string
		}
	}
	eventually(t, time.Minute, "nothing else is left", func() bool {
		_, body := call(t, "GET", box+"/files?recursive=true", "")
		if err := json.Unmarshal([]byte(body), &listing); err != nil {
			t.Fatal(err)
		}
		files := 0
		for _, e := range listing.Entries {
			if e.Type == "file" {
				files++
			}
		}
		return files == 1
	})
}

func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the client breaks off") }

// TestClientGoneMidDownload: the daemon goes on serving.
func TestClientGoneMidDownload(t *testing.T) {
	t.Parallel()
	box := sandboxOn(t)
	call(t, "POST", box+"/exec", `{"cmd":"head -c 50000000 /dev/zero > big; mkdir d; cp big d/"}`)
	for _, path := range []string{"/files/content?path=big", "/files/archive?path=d&format=tar", "/files/watch"} {
		for range 5 {
			ctx, leave := context.WithCancel(context.Background())
			req, err := http.NewRequestWithContext(ctx, "GET", box+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != http.StatusOK {
				t.Errorf("GET %s = %s", path, res.Status)
			}
			if path != "/files/watch" {
				if _, err := io.CopyN(io.Discard, res.Body, 1000); err != nil {
					t.Fatal(err)
				}
			}
			leave()
			res.Body.Close()
		}
	}
	if _, body := call(t, "POST", box+"/exec", `{"cmd":"echo fine"}`); !strings.Contains(body, "fine") {
		t.Errorf("afterwards: %s", body)
	}
}

// TestWatch reports the changes that are made after it said that it is ready.
func TestWatch(t *testing.T) {
	t.Parallel()
	box := sandboxOn(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", box+"/files/watch?recursive=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for lines := bufio.NewScanner(res.Body); ; {
		if !lines.Scan() {
			t.Fatalf("the watch ended without the change: %v", lines.Err())
		}
		data, _ := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case strings.Contains(data, `"op":"ready"`):
			call(t, "PUT", box+"/files?path=dir/seen.txt&parents=true", "x")
		case strings.Contains(data, "/workspace/dir"):
			return
		}
	}
}

// TestManyFollowers read one output at once, each from another offset.
func TestManyFollowers(t *testing.T) {
	t.Parallel()
	box := sandboxOn(t)
	call(t, "POST", box+"/exec", `{"cmd":"i=0; while test $i -lt 300; do i=$((i+1)); echo line $i; done; while test ! -e go; do sleep 0.02; done; echo end","wait":false}`)
	_, all := call(t, "GET", box+"/execs/1/output", "")
	results := make(chan error)
	const followers = 20
	for i := range followers {
		go func() {
			after := i * len(all) / followers
			res, err := http.Get(fmt.Sprintf("%s/execs/1/output?follow=true&after=%d", box, after))
			if err != nil {
				results <- err
				return
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err == nil && (!strings.HasSuffix(string(text), "line 300\nend\n") || !strings.HasPrefix(string(text), all[after:])) {
				err = fmt.Errorf("after %d came %d bytes that do not fit", after, len(text))
			}
			results <- err
		}()
	}
	call(t, "PUT", box+"/files?path=go", "x")
	for range followers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
