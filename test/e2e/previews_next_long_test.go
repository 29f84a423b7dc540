//go:build root && long

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cubbyhq/cubby/internal/browsertest"
	"github.com/cubbyhq/cubby/test/harness"
)

// TestNextInABrowser uses the development server of Next.js as it is: forms whose
// actions run on the server, their check of origins, and changes of code.
func TestNextInABrowser(t *testing.T) {
	t.Parallel()
	packages := appPackages(t, "next")
	h := newReal(t, harness.Options{})
	url, err := h.start(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(url)
	b := browsertest.New(t)
	// A foreign page with a form of its own for the action.
	foreign := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<form method="post" enctype="multipart/form-data" action="%s"><input name="%s"><input name="text" value="forged"><button>Go</button></form>`,
			r.FormValue("to"), r.FormValue("action"))
	}))
	defer foreign.Close()
	for _, isolation := range []string{"gvisor", "container"} {
		t.Run(isolation, func(t *testing.T) {
			a := newApp(t, c, isolation, "next", packages, 3000)
			a.sh("mkdir -p .next")
			a.serve("NEXT_TELEMETRY_DISABLED=1 npm run dev")
			b := b.Visitor(t)
			b.Open(a.address)
			b.Until(shows("Hello from Next"))
			// The form is the page's own when React has taken it over.
			b.Until("Object.keys(document.querySelector('form')).some((k) => k.startsWith('__react'))")
			b.Run("window.same = 1")
			b.Picture("next-" + isolation + "-1-before")
			for _, text := range []string{"first", "second"} {
				b.Do(chromedp.SetValue("input[name=text]", text), chromedp.Click("#say"))
				b.Until("Array.from(document.querySelectorAll('li'), (li) => li.innerText).at(-1) === '" + text + "'")
			}
			b.Until("document.cookie === 'said=2'")
			if got := b.Get("window.same"); got != "1" {
				t.Errorf("an action made the page load: %s", got)
			}
			b.Picture("next-" + isolation + "-2-after")
			b.Do(chromedp.Click("#leave"))
			b.Until("location.search === '?left=1' && " + shows("You left"))

			id := regexp.MustCompile(`\$ACTION_ID_\w+`).FindString(b.Run("return (await fetch('/')).text()"))
			if id == "" {
				t.Fatal("the page has no action without a script")
			}
			b.Open(foreign.URL + "/?to=" + a.address + "&action=" + id)
			b.Do(chromedp.Click("button"))
			a.sh("until grep 'does not match .origin. header' /tmp/log-3000; do sleep 0.2; done")
			b.Picture("next-" + isolation + "-3-forged")
			b.Open(a.address)
			b.Until(shows("second"))
			if got := b.Get("document.querySelectorAll('li').length"); got != "2" {
				t.Errorf("after a forged form the page has %s entries:\n%s", got, b.Text())
			}
			// The same form is good where it comes from the page itself.
			b.Run(`const form = new FormData(); form.set('` + id + `', ''); form.set('text', 'third');
				await fetch('/', { method: 'POST', body: form })`)
			b.Open(a.address)
			b.Until(shows("third"))

			b.Until("Object.keys(document.querySelector('form')).some((k) => k.startsWith('__react'))")
			b.Run("window.same = 2")
			a.replace("app/page.jsx", "Hello from Next", "Changed by an agent")
			b.Until(shows("Changed by an agent"))
			if got := b.Get("window.same"); got != "2" {
				t.Errorf("a change of code made the page load: %s", got)
			}
		})
	}
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
