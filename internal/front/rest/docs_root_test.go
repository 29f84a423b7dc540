//go:build root

package rest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

var screenshots = flag.String("screenshots", "", "write pictures of /docs into this directory")

// TestDocsPage: every operation of the document is on the page, the filter
// hides what does not match, and nothing is wider than a phone.
func TestDocsPage(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ctx, release := chromedp.NewExecAllocator(ctx,
		chromedp.WSURLReadTimeout(time.Minute), chromedp.Headless, chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-sync", true), chromedp.Flag("disable-dev-shm-usage", true))
	defer release()
	ctx, leave := chromedp.NewContext(ctx)
	defer leave()
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	res, err := http.Get(d.URL + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, ops := range doc.Paths {
		for _, op := range ops {
			all = append(all, op.OperationID)
		}
	}
	ids, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int64{390, 1280} {
		t.Run(strconv.FormatInt(width, 10), func(t *testing.T) {
			do := func(actions ...chromedp.Action) {
				t.Helper()
				if err := chromedp.Run(ctx, actions...); err != nil {
					t.Fatal(err)
				}
			}
			do(chromedp.EmulateViewport(width, 900), chromedp.Navigate(d.URL+"/docs"),
				chromedp.Poll("document.getElementById('tag-tenants') !== null", nil))
			var missing []string
			do(chromedp.Evaluate(fmt.Sprintf(`%s.filter((id) => !document.getElementById(id) || !document.querySelector('#toc a[href="#' + id + '"]'))`, ids), &missing))
			if len(missing) > 0 {
				t.Errorf("not on the page: %v", missing)
			}
			var wide int64
			do(chromedp.Evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true }); const wide = document.documentElement.scrollWidth; document.querySelectorAll('details').forEach((d) => { d.open = false }); wide", &wide))
			if wide > width {
				t.Errorf("the page is %d pixels wide, want at most %d", wide, width)
			}
			shown := func(id string) (visible bool) {
				t.Helper()
				do(chromedp.Evaluate(fmt.Sprintf("document.getElementById('%s').checkVisibility()", id), &visible))
				return visible
			}
			do(chromedp.SendKeys("#filter", "upload archive", chromedp.ByQuery))
			if !shown("upload-archive") || shown("download-archive") || shown("tag-tenants") {
				t.Error("the filter does not show upload-archive alone")
			}
			if *screenshots != "" {
				var picture []byte
				do(chromedp.CaptureScreenshot(&picture))
				if err := os.WriteFile(fmt.Sprintf("%s/docs-%d.png", *screenshots, width), picture, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			do(chromedp.SendKeys("#filter", " and nothing else", chromedp.ByQuery))
			if shown("upload-archive") || !shown("none") {
				t.Error("the filter shows what does not match")
			}
		})
	}
}
