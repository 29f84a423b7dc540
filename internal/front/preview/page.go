package preview

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what a visitor is told where an app does not answer. It says nothing
// of the sandbox: whoever may see the app need not know of it.
type page struct {
	Title, Text string
	// Again is after how many seconds the page looks again; 0: never.
	Again int
}

// status and page of an error. They are the same for each kind: a stranger
// learns from none which sandboxes there are.
func pageOf(err error) (int, page) {
	switch kind := errs.KindOf(err); kind {
	case errs.NotFound:
		return http.StatusNotFound, page{Title: "No such preview", Text: "There is no preview at this address."}
	case errs.Unauthenticated:
		return http.StatusUnauthorized, page{Title: "This preview is not open", Text: "You need a valid link to see it. Yours may have expired, or the address may be wrong."}
	case errs.Unready:
		return http.StatusServiceUnavailable, page{Title: "Spinning up your app…", Text: "It will be ready in a moment.", Again: 1}
	case errs.Unavailable:
		return http.StatusBadGateway, page{Title: "Nothing is here yet", Text: "The app does not answer. This page checks again by itself.", Again: 2}
	case errs.LowMemory, errs.Exhausted:
		return http.StatusServiceUnavailable, page{Title: "Too busy", Text: "There is no capacity for the app right now. This page tries again in 30 seconds.", Again: 30}
	case errs.WrongState, errs.Conflict, errs.InUse, errs.TaskInProgress, errs.SharedFiles:
		return http.StatusServiceUnavailable, page{Title: "The app is stopped", Text: "Its owner can start it again."}
	case errs.Timeout:
		return http.StatusGatewayTimeout, page{Title: "The app takes long to start", Text: "This page checks again by itself.", Again: 2}
	case errs.OverQuota:
		return http.StatusTooManyRequests, page{Title: "Too many requests", Text: "This page tries again in 5 seconds.", Again: 5}
	case errs.TooLarge:
		return http.StatusRequestEntityTooLarge, page{Title: "The request is too large", Text: "The app did not receive it."}
	default:
		return front.RowOf(kind).HTTP, page{Title: "Something went wrong", Text: "The app cannot be shown right now."}
	}
}

// Refuse answers with an error: with a page to a browser that shows one, else as
// JSON.
func (d *Door) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	d.logFault(r.Context(), err)
	status, p := pageOf(err)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if p.Again > 0 {
		h.Set("Retry-After", strconv.Itoa(p.Again))
	} else if retry := errs.Public(err).RetryAfter; retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int(retry.Seconds()+0.5)))
	}
	if !wantsPage(r) {
		front.WriteJSON(w, status, front.Problem{Error: front.Detail{
			Code: front.RowOf(errs.KindOf(err)).Code, Message: p.Title + ": " + p.Text,
			Retryable: p.Again > 0 || front.RowOf(errs.KindOf(err)).Retryable, RequestID: front.RequestID(r.Context()),
		}})
		return
	}
	var text bytes.Buffer
	if err := pageTemplate.Execute(&text, p); err != nil {
		panic(err) // the template is fixed, and so is what it is given
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors *")
	h.Set("Content-Length", strconv.Itoa(text.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(text.Bytes()) // the visitor went away: nobody is left to tell
}

// wantsPage reports whether a visitor can show HTML.
func wantsPage(r *http.Request) bool {
	return strings.Contains(strings.ToLower(strings.Join(r.Header.Values("Accept"), ",")), "text/html")
}

// isPage reports whether a request asks for a page that a person looks at.
func isPage(r *http.Request) bool {
	return r.Method == http.MethodGet && wantsPage(r) && r.Header.Get("Upgrade") == ""
}
