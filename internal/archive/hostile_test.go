package archive_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/cubbyhq/cubby/internal/archive"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// hostile is a storage that answers as a test says.
type hostile struct {
	*archive.Storage
	m    archive.Manifest // of an archive that it says it has
	sent atomic.Int64     // bytes of answers
}

func newHostile(t *testing.T, region string, answer func(h *hostile, w http.ResponseWriter, r *http.Request)) *hostile {
	t.Helper()
	h := new(hostile)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.URL.Query()["location"]; ok && region != "" {
			fmt.Fprintf(w, "<LocationConstraint>%s</LocationConstraint>", region)
			return
		}
		answer(h, w, r)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	var err error
	h.Storage, err = archive.Open(archive.Config{
		URL: "s3://bucket", Endpoint: srv.URL, Region: region, AccessKey: "key", SecretKey: "hunter2", Stall: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	uid := sandbox.NewUID()
	h.m = archive.Manifest{
		Version: 1, Name: archive.Name("box", uid), ID: "box", UID: uid, Image: "base", Isolation: sandbox.GVisor,
		Parts: []archive.Part{{Path: "/workspace", Object: "workspace.tar.zst", Bytes: 1 << 20, TarBytes: 4096, SHA256: strings.Repeat("0", 64)}},
	}
	return h
}

// endless writes until the client has gone.
func (h *hostile) endless(w io.Writer, text string) {
	block := []byte(strings.Repeat(text, 32<<10/len(text)))
	for {
		n, err := w.Write(block)
		if h.sent.Add(int64(n)); err != nil {
			return
		}
	}
}

// uses are what the daemon does with a storage.
func (h *hostile) uses(ctx context.Context) map[string]error {
	said := make(map[string]error)
	_, said["get"] = h.Get(ctx, "", h.m.Name)
	said["remove"] = h.Remove(ctx, "", h.m.Name)
	r, err := h.Open(ctx, h.m, h.m.Parts[0])
	if err == nil {
		var n int64
		n, err = io.Copy(io.Discard, r)
		err = errors.Join(err, r.Finish(), r.Close())
		if n > h.m.Parts[0].TarBytes {
			err = nil // it was believed
		}
	}
	said["read"] = err
	_, said["put"] = h.Put(ctx, h.m, []string{"/workspace"}, func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{}, 1<<20)), nil
	})
	return said
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A storage that lies, stalls or does not end is given up, with an error that is
// classified and says none of its words; nothing of it is kept in memory.
func TestHostileStorage(t *testing.T) {
	const region = "us-east-1"
	var trapped atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	t.Cleanup(trap.Close)
	bomb := func() []byte {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b)
		if err == nil {
			_, err = io.Copy(z, io.LimitReader(zeros{}, 256<<20))
		}
		if err = errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}()
	object := func(w http.ResponseWriter, length int) {
		w.Header().Set("Content-Length", fmt.Sprint(length))
		w.Header().Set("ETag", `"00000000000000000000000000000000"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	}
	for _, c := range []struct {
		name, region string
		answer       func(h *hostile, w http.ResponseWriter, r *http.Request)
	}{
		{"redirects to another host", region, func(_ *hostile, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, trap.URL+"/secret", http.StatusTemporaryRedirect)
		}},
		{"errors without end", region, func(h *hostile, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			h.endless(w, "<Error><Code>secret</Code>")
		}},
		{"a region without end", "", func(h *hostile, w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<LocationConstraint>")
			h.endless(w, "secret")
		}},
		{"objects and answers without end", region, func(h *hostile, w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.Header().Set("ETag", `"00000000000000000000000000000000"`)
				w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			} else {
				fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>")
			}
			h.endless(w, "secret")
		}},
		{"headers without end", region, func(h *hostile, w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n")
			h.endless(conn, "X-Secret: secret\r\n")
		}},
		{"no answer", region, func(_ *hostile, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
		{"answers that stall", region, func(_ *hostile, w http.ResponseWriter, r *http.Request) {
			object(w, 1<<20)
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		{"answers that break off", region, func(_ *hostile, w http.ResponseWriter, _ *http.Request) {
			object(w, 1<<20)
			fmt.Fprint(w, "{")
		}},
		{"a little that becomes much", region, func(h *hostile, w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				w.WriteHeader(http.StatusNotImplemented)
				return
			}
			text := bomb
			if strings.HasSuffix(r.URL.Path, "manifest.json") {
				m := h.m
				m.Parts = []archive.Part{{Path: "/workspace", Object: "../other/tenant"}}
				text, _ = json.Marshal(m)
			}
			object(w, len(text))
			_, _ = w.Write(text)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t, c.region, c.answer)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			for use, err := range h.uses(ctx) {
				t.Logf("%s: %v", use, err)
				if err == nil || ctx.Err() != nil {
					t.Errorf("%s: %v, %v", use, err, ctx.Err())
					continue
				}
				if info := errs.Public(err); info.Kind == errs.Internal || strings.Contains(info.Message+info.Hint, "secret") {
					t.Errorf("%s: %+v of %v", use, info, err)
				}
			}
			if n := h.sent.Load(); n > 256<<20 {
				t.Errorf("it took %d bytes", n)
			}
		})
	}
	t.Cleanup(func() {
		if n := trapped.Load(); n > 0 {
			t.Errorf("%d requests went where the storage said", n)
		}
	})
}
