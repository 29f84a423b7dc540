package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/cubbyhq/cubby/internal/llm"
)

// Trouble is what a provider says is wrong.
type Trouble struct {
	Said       bool   // it is an object that says so
	Code       string // the provider's words for the kind: its code, type and status
	Message    string
	Status     int // of HTTP, as the object has it; 0: it does not
	RetryAfter time.Duration
	PerDay     bool // a quota of a day, which no short pause helps
}

// ReadTrouble reads the objects with which providers, and servers that speak like
// one, say what is wrong. What is none of them is the message as it is.
func ReadTrouble(body []byte) Trouble {
	body = bytes.TrimSpace(body)
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var outer struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
		Object  string          `json:"object"`
		Type    string          `json:"type"`
		Code    any             `json:"code"`
	}
	if json.Unmarshal(body, &outer) != nil {
		return Trouble{Message: string(body)}
	}
	if outer.Error == nil || string(outer.Error) == "null" {
		switch {
		case outer.Message != "" && (outer.Object == "error" || outer.Code != nil || outer.Type != ""):
			return trouble(outer.Message, outer.Code, outer.Type)
		case outer.Message != "":
			return trouble(outer.Message)
		case outer.Detail != nil:
			return trouble(detail(outer.Detail))
		}
		return Trouble{Message: string(body)}
	}
	var text string
	if json.Unmarshal(outer.Error, &text) == nil {
		return trouble(text)
	}
	var inner struct {
		Message  string          `json:"message"`
		Type     string          `json:"type"`
		Code     any             `json:"code"`
		Status   string          `json:"status"`
		Details  []googleDetail  `json:"details"`
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(outer.Error, &inner) != nil {
		return Trouble{Said: true, Message: string(outer.Error)}
	}
	t := trouble(inner.Message, inner.Code, inner.Type, inner.Status)
	for _, d := range inner.Details {
		d.add(&t)
	}
	// OpenRouter passes on what another provider said.
	var metadata struct {
		Raw string `json:"raw"`
	}
	if json.Unmarshal(inner.Metadata, &metadata) == nil && metadata.Raw != "" {
		t.Message += ": " + metadata.Raw
	}
	return t
}

func trouble(message string, words ...any) Trouble {
	t := Trouble{Said: true, Message: message}
	for _, w := range words {
		switch w := w.(type) {
		case string:
			t.Code = strings.TrimSpace(t.Code + " " + w)
			if n, err := strconv.Atoi(w); err == nil && http.StatusText(n) != "" {
				t.Status = n
			}
		case float64:
			t.Status = int(w)
		}
	}
	return t
}

// detail reads what FastAPI says: words, or a list of what is wrong with the fields.
func detail(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var fields []struct {
		Message  string `json:"msg"`
		Location []any  `json:"loc"`
	}
	if json.Unmarshal(raw, &fields) == nil && len(fields) > 0 {
		if n := len(fields[0].Location); n > 0 {
			if name, ok := fields[0].Location[n-1].(string); ok {
				return name + ": " + fields[0].Message
			}
		}
		return fields[0].Message
	}
	return string(raw)
}

// googleDetail is one of those that Google's APIs add.
type googleDetail struct {
	Reason     string `json:"reason"`     // ErrorInfo
	RetryDelay string `json:"retryDelay"` // RetryInfo, as "34.5s"
	Violations []struct {
		QuotaID string `json:"quotaId"`
	} `json:"violations"` // QuotaFailure
}

func (d googleDetail) add(t *Trouble) {
	if d.Reason != "" {
		t.Code += " " + d.Reason
	}
	if after, err := time.ParseDuration(d.RetryDelay); err == nil && after > 0 {
		t.RetryAfter = after
	}
	for _, v := range d.Violations {
		t.PerDay = t.PerDay || strings.Contains(v.QuotaID, "PerDay")
	}
}

// refused reads an answer that is not a good one.
func (c *Client) refused(res *http.Response) *llm.Error {
	if res.StatusCode < 400 {
		where := "nowhere"
		if to, err := res.Location(); err == nil {
			where = to.Host
		}
		return c.fault(llm.Invalid, res.StatusCode, "it redirects to "+where+", where the key does not go", nil)
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxFault))
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); isPage(kind, body) {
		fault := c.page(res.StatusCode, body)
		fault.RetryAfter = retryAfter(res.Header, time.Now())
		return fault
	}
	t := ReadTrouble(body)
	if after := retryAfter(res.Header, time.Now()); after > 0 {
		t.RetryAfter = after
	}
	fault := c.Fault(res.StatusCode, t)
	if res.Header.Get("X-Should-Retry") == "false" {
		fault.Cause = errFinal
	}
	return fault
}

// retryAfter reads in how long a provider wants to be asked again; 0: it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 && ms < 1e9 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		if s > 0 && s < 1e7 {
			return time.Duration(s * float64(time.Second))
		}
		return 0
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// Fault sorts what a provider says is wrong. status is that of HTTP, 0 in the
// middle of a stream.
func (c *Client) Fault(status int, t Trouble) *llm.Error {
	if status == 0 || status < 300 && t.Status >= 400 {
		status = t.Status
	}
	message := t.Message
	if strings.TrimSpace(message) == "" {
		message = strings.TrimSpace(t.Code)
	}
	if message == "" && status != 0 {
		message = "HTTP status " + strconv.Itoa(status)
	}
	e := c.fault(sort(status, t), status, message, nil)
	e.RetryAfter = t.RetryAfter
	return e
}

// fault makes an error without the key in it.
func (c *Client) fault(kind llm.Fault, status int, message string, cause error) *llm.Error {
	return &llm.Error{Fault: kind, Provider: c.config.Name, Status: status, Message: c.bounded(message), Cause: c.withoutKey(cause)}
}

// withoutKey returns a cause that does not have the key in its text.
func (c *Client) withoutKey(cause error) error {
	if cause == nil {
		return nil
	}
	if clean := c.redacted(cause.Error()); clean != cause.Error() {
		return redactedError{clean}
	}
	return cause
}

type redactedError struct{ text string }

func (e redactedError) Error() string { return e.text }

// redacted takes the key out of a text, as it is and as it is written in JSON and URLs.
func (c *Client) redacted(text string) string {
	key := c.config.Key.Reveal()
	if key == "" {
		return text
	}
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	_ = e.Encode(key) // a string always can be
	web, _ := json.Marshal(key)
	for _, form := range []string{key, strings.Trim(quoted.String(), "\"\n"), string(web[1 : len(web)-1]), url.QueryEscape(key), url.PathEscape(key)} {
		text = strings.ReplaceAll(text, form, "[key]")
	}
	return text
}

// bounded makes a provider's words fit for an error: one line of printable
// characters, not too long, without the key.
func (c *Client) bounded(text string) string {
	text = c.redacted(strings.ToValidUTF8(text, "\ufffd"))
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	n := 0
	for i := range text {
		if n++; n > maxText {
			return text[:i] + "…"
		}
	}
	return text
}

// Invalid is the error of a request that cannot be written in a dialect.
func (c *Client) Invalid(cause error) *llm.Error {
	return c.fault(llm.Invalid, 0, cause.Error(), nil)
}

// Broken is the error of an answer that is none of the dialect.
func (c *Client) Broken(message string) *llm.Error { return c.broken(message, nil) }
