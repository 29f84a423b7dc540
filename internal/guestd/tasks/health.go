package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cubbyhq/cubby/internal/task"
)

const (
	// restartLimit is how long the host and the dev server have together.
	restartLimit = 25 * time.Second
	probeLimit   = 5 * time.Second
	probeEvery   = 250 * time.Millisecond
	// maxPage and maxPageError bound what is read and told of a page that failed.
	maxPage      = 64 << 10
	maxPageError = 500
)

// The states of a preview.
const (
	previewReady = "ready"
	previewError = "error"
	previewDown  = "down"
)

// configFiles match the names of files that a dev server reads at its start.
var configFiles = []string{"vite.config.*", "tailwind.config.*", "postcss.config.*", "tsconfig*.json", "index.css", "App.css"}

// configChanged reports whether one of the files is such a one.
func configChanged(files []string) bool {
	for _, f := range files {
		for _, pattern := range configFiles {
			if ok, _ := path.Match(pattern, path.Base(f)); ok {
				return true
			}
		}
	}
	return false
}

// health is what the application's port answered.
type health struct{ status, message string }

// checkHealth probes the application of an order.
func checkHealth(ctx context.Context, order task.Order, changed []string, host *replies) health {
	if order.Port <= 0 {
		return health{}
	}
	patience := time.Duration(0)
	if order.DevServer && configChanged(changed) {
		begun := time.Now()
		waiting, cancel := within(ctx, restartLimit, errTimeLimit)
		acted, _ := host.act(waiting, task.ActRestart)
		cancel()
		if acted.OK {
			patience = max(restartLimit-time.Since(begun), time.Second)
		}
	}
	return probe(ctx, order.Port, pages(order.Cwd), patience)
}

// pages are the paths that tell whether an application works.
func pages(dir string) []string {
	found := []string{"/"}
	if configs, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "vite.config.*")); len(configs) > 0 {
		for _, page := range []string{"/src/index.css", "/src/main.tsx"} {
			if _, err := os.Stat(filepath.Join(dir, page)); err == nil {
				found = append(found, page)
			}
		}
	}
	return found
}

func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// probe asks for the pages, the first one again and again until it answers or
// patience is over.
func probe(ctx context.Context, port int, pages []string, patience time.Duration) health {
	client := &http.Client{
		Timeout:       probeLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{Proxy: nil, DialContext: dialLoopback, DisableKeepAlives: true},
	}
	defer client.CloseIdleConnections()
	waiting, cancel := within(ctx, max(patience, time.Millisecond), errTimeLimit)
	defer cancel()
	for i, page := range pages {
		status, body, err := fetch(ctx, client, port, page)
		for i == 0 && err != nil && patience > 0 {
			timer := time.NewTimer(probeEvery)
			select {
			case <-timer.C:
			case <-waiting.Done():
				timer.Stop()
				patience = 0
			}
			status, body, err = fetch(ctx, client, port, page)
		}
		switch {
		case err != nil && i == 0:
			return health{previewDown, fmt.Sprintf("port %d does not answer", port)}
		case err != nil:
			return health{previewError, fmt.Sprintf("%s does not answer", page)}
		case status >= 500:
			return health{previewError, strings.TrimSpace(fmt.Sprintf("%s answers %d: %s", page, status, pageError(body)))}
		}
	}
	return health{status: previewReady}
}

// dialLoopback dials a port of either loopback address: some servers listen on one
// only.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	conn, err := d.DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		if other, otherErr := d.DialContext(ctx, network, net.JoinHostPort("::1", port)); otherErr == nil {
			return other, nil
		}
	}
	return conn, err
}

func fetch(ctx context.Context, client *http.Client, port int, page string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+strconv.Itoa(port)+page, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Accept", "text/html,*/*")
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxPage))
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return res.StatusCode, body, err
}

// pageError is the text of a page that says what went wrong.
func pageError(body []byte) string {
	// Compiled here: the agent of every sandbox begins without them.
	var (
		pageScript = regexp.MustCompile(`(?is)<(script|style)\b.*?</(script|style)>`)
		pageTag    = regexp.MustCompile(`(?s)<[^>]*>`)
		ansiColor  = regexp.MustCompile("\x1b\\[[0-9;]*m")
		// viteError is where Vite's page for a failed module has its error.
		viteError = regexp.MustCompile(`(?s)const error = (\{.*?\})\s*(?:;|\n)`)
	)
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	var said struct {
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	candidate := text
	if m := viteError.FindStringSubmatch(text); m != nil {
		candidate = m[1]
	}
	if json.Unmarshal([]byte(candidate), &said) == nil {
		var inner string
		switch {
		case said.Message != "":
			text = said.Message
		case json.Unmarshal(said.Error, &inner) == nil && inner != "":
			text = inner
		}
	}
	text = pageTag.ReplaceAllString(pageScript.ReplaceAllString(text, " "), " ")
	text = ansiColor.ReplaceAllString(html.UnescapeString(text), "")
	return runes(strings.Join(strings.Fields(text), " "), maxPageError)
}
