package preview_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// BenchmarkRequest is a small request on a kept connection to an app beside the
// daemon, directly and through its preview: the difference is what the door, core
// and the agent add.
func BenchmarkRequest(b *testing.B) {
	d := daemontest.Start(b, daemontest.Options{})
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "here\n") }))
	defer app.Close()
	port := app.Listener.Addr().(*net.TCPAddr).Port
	c := &http.Client{Transport: new(http.Transport)}
	defer c.CloseIdleConnections()
	res, err := c.Post(d.URL+"/v1/sandboxes", "application/json", strings.NewReader(fmt.Sprintf(`{"id":"a","ports":[%d],"visibility":"public"}`, port)))
	if err != nil || res.StatusCode != http.StatusCreated {
		b.Fatalf("create: %v %+v", err, res)
	}
	res.Body.Close()
	for name, address := range map[string]string{"direct": app.URL, "preview": "http://" + d.Shows} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				req, err := http.NewRequestWithContext(b.Context(), "GET", address, nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Host = fmt.Sprintf("s-a-%d.%s", port, domain)
				res, err := c.Do(req)
				if err != nil || res.StatusCode != http.StatusOK {
					b.Fatalf("%v %+v", err, res)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		})
	}
}
