package llmtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/llm"
)

func testRetries(t *testing.T, d Dialect) {
	good := events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Hi."}}, Stop: llm.StopEnd})...)
	limit, limited := d.Fake.Trouble(RateLimit)
	overload, overloaded := d.Fake.Trouble(Overload)
	cut := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for name, tt := range map[string]struct {
		first answer
		fault llm.Fault
		after time.Duration
	}{
		"429":               {refusal(limit, limited), llm.Limited, 0},
		"429, seconds":      {refusal(limit, limited, "Retry-After", "0.02"), llm.Limited, 20 * time.Millisecond},
		"429, milliseconds": {refusal(limit, limited, "Retry-After-Ms", "30"), llm.Limited, 30 * time.Millisecond},
		"overloaded":        {refusal(overload, overloaded), llm.Unavailable, 0},
		"408":               {refusal(408, ""), llm.Unavailable, 0},
		"409":               {refusal(409, "conflict"), llm.Unavailable, 0},
		"502":               {refusal(502, "<html>bad gateway</html>"), llm.Unavailable, 0},
		"cut":               {cut, llm.Unavailable, 0},
		"cut in the stream": {broken(": nothing yet\n\n"), llm.Unavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, d, tt.first, good)
			o := ask(t.Context(), s.provider(), hello())
			o.done(t, llm.StopEnd, llm.Text{Text: "Hi."})
			if len(o.retries) != 1 || o.retries[0].Err.Fault != tt.fault {
				t.Fatalf("tried again: %v, want once for %s", o.retries, tt.fault)
			}
			if tt.after != 0 && o.retries[0].After != tt.after {
				t.Errorf("after %s, want %s", o.retries[0].After, tt.after)
			}
			outcome{err: o.retries[0].Err}.fault(t, tt.fault)
		})
	}
}

func testGivenUp(t *testing.T, d Dialect) {
	status, body := d.Fake.Trouble(Overload)
	a := refusal(status, body)
	o := ask(t.Context(), serve(t, d, a, a, a).provider(), hello())
	e := o.failure(t, llm.Unavailable)
	if len(o.retries) != 2 || e.Status != status {
		t.Errorf("tried again %d times, status %d, want 2 and %d", len(o.retries), e.Status, status)
	}
}

// testLater does not wait for what takes longer than a minute.
func testLater(t *testing.T, d Dialect) {
	status, body := d.Fake.Trouble(RateLimit)
	for _, after := range []string{"3600", time.Now().Add(time.Hour + time.Second).UTC().Format(http.TimeFormat)} {
		o := ask(t.Context(), serve(t, d, refusal(status, body, "Retry-After", after)).provider(), hello())
		e := o.failure(t, llm.Limited)
		if len(o.retries) != 0 || e.RetryAfter < 59*time.Minute || e.RetryAfter > 61*time.Minute {
			t.Errorf("Retry-After: %s: tried again %d times, then %s", after, len(o.retries), e.RetryAfter)
		}
	}
	// The past is no time to wait for.
	good := events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Hi."}}, Stop: llm.StopEnd})...)
	s := serve(t, d, refusal(status, body, "Retry-After", "Mon, 02 Jan 2006 15:04:05 GMT"), good)
	ask(t.Context(), s.provider(), hello()).done(t, llm.StopEnd, llm.Text{Text: "Hi."})
}

func testTroubles(t *testing.T, d Dialect) {
	for kind, want := range map[Kind]llm.Fault{
		BadKey: llm.Denied, NoModel: llm.NoModel, TooLong: llm.TooLong, Quota: llm.Quota, NoEyes: llm.Unsupported, BadParam: llm.Invalid,
	} {
		t.Run(string(kind), func(t *testing.T) {
			status, body := d.Fake.Trouble(kind)
			o := ask(t.Context(), serve(t, d, refusal(status, body)).provider(), hello())
			e := o.failure(t, want)
			if e.Status != status || e.Message == "" || strings.ContainsAny(e.Message, "{}\n") {
				t.Errorf("status %d, message %q", e.Status, e.Message)
			}
			if len(o.events) != 0 {
				t.Errorf("events: %v", o.events)
			}
		})
	}
	t.Run("a long text", func(t *testing.T) {
		o := ask(t.Context(), serve(t, d, refusal(400, strings.Repeat("ä\x00\n", 4000))).provider(), hello())
		o.fault(t, llm.Invalid)
	})
	t.Run("the key in it", func(t *testing.T) {
		o := ask(t.Context(), serve(t, d, refusal(400, `{"error":{"message":"what is \"sk-\\\"very/secret&key\"?"}}`)).provider(), hello())
		o.fault(t, llm.Invalid)
		o = ask(t.Context(), serve(t, d, refusal(400, "what is "+Secret+"?")).provider(), hello())
		o.fault(t, llm.Invalid)
	})
}

// testBroken is about answers that break off: nothing is asked again once something
// of an answer has come.
func testBroken(t *testing.T, d Dialect) {
	list := d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "one two three"}, call("call_1", "weather", `{"city":"Rome"}`)}, Stop: llm.StopTools})
	half := list[:len(list)/2]
	for name, a := range map[string]answer{
		"no end":             events(half...),
		"cut":                broken(half...),
		"an error":           events(append(append([]string{}, half...), d.Fake.Failure())...),
		"no JSON":            events(append(append([]string{}, half...), "data: {\"half\n\n")...),
		"another type":       events(append(append([]string{}, half...), "data: [1,2]\n\n")...),
		"nothing":            events(),
		"only comments":      events(": one\n\n", ": two\n\n"),
		"half an event":      events(append(append([]string{}, half...), "data: {\"a\":")...),
		"no stream, but 200": refusal(200, `{"object":"chat.completion"}`),
	} {
		t.Run(name, func(t *testing.T) {
			o := ask(t.Context(), serve(t, d, a).provider(), hello())
			o.fault(t, llm.Broken)
			for _, e := range o.events {
				if _, ok := e.(llm.Done); ok {
					t.Error("it is done all the same")
				}
			}
		})
	}
	t.Run("keeps what the provider says", func(t *testing.T) {
		const said = "the backend is out of tokens 4711"
		for name, last := range map[string]string{
			"an error event of words":        "event: error\ndata: " + said + "\n\n",
			"words":                          "data: " + said + "\n\n",
			"an error that is no event":      `{"error": {"message": "` + said + `", "code": 500}}` + "\n",
			"an error of several lines":      "{\n  \"error\": {\n    \"message\": \"" + said + "\"\n  }\n}\n",
			"an error event, then the end":   "event: error\ndata: {\"error\":{\"message\":\"" + said + "\"}}\n\n",
			"an error object without a name": "event: error\ndata: {\"object\":\"error\",\"message\":\"" + said + "\",\"code\":400}\n\n",
		} {
			if e := ask(t.Context(), serve(t, d, events(append(append([]string{}, half...), last)...)).provider(), hello()).failure(t, llm.Broken); !strings.Contains(e.Message, said) {
				t.Errorf("%s: the error is %q", name, e.Message)
			}
		}
	})
	t.Run("every prefix", func(t *testing.T) {
		// The last events may be no more than the usage, which nobody waits for.
		for n := range len(list) / 2 {
			ask(t.Context(), serve(t, d, events(list[:n]...)).provider(), hello()).fault(t, llm.Broken)
		}
	})
	t.Run("an error before anything", func(t *testing.T) {
		good := events(d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "Hi."}}, Stop: llm.StopEnd})...)
		o := ask(t.Context(), serve(t, d, events(d.Fake.Failure()), good).provider(), hello())
		o.done(t, llm.StopEnd, llm.Text{Text: "Hi."})
		if len(o.retries) != 1 {
			t.Errorf("tried again: %v", o.retries)
		}
	})
	t.Run("an error with 200", func(t *testing.T) {
		_, body := d.Fake.Trouble(BadKey)
		ask(t.Context(), serve(t, d, refusal(200, body)).provider(), hello()).fault(t, llm.Denied)
	})
}

func testLongLines(t *testing.T, d Dialect) {
	long := strings.Repeat("ü", 1<<20)
	parts := []llm.Part{llm.Text{Text: long}}
	if d.Images {
		parts = []llm.Part{llm.Image{MIME: "image/png", Data: []byte(long)}, llm.Text{Text: long}}
	}
	o := ask(t.Context(), serve(t, d, events(d.Fake.Events(Reply{Parts: parts, Stop: llm.StopEnd})...)).provider(), hello())
	if last := o.answer.Parts[len(o.answer.Parts)-1]; o.err != nil || last != (llm.Text{Text: long}) {
		t.Errorf("a long answer: %v", o.err)
	}
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		block := strings.Repeat("a", 1<<20)
		_, err := io.WriteString(w, "data: ")
		for err == nil {
			_, err = io.WriteString(w, block)
		}
	}
	ask(t.Context(), serve(t, d, endless).provider(), hello()).fault(t, llm.Broken)
}

// testTooMuch has answers with more than any model says at once.
func testTooMuch(t *testing.T, d Dialect) {
	call := func(n int, arguments string) (parts []llm.Part) {
		for i := range n {
			parts = append(parts, llm.ToolCall{ID: fmt.Sprintf("call_%d", i), Name: "f", Arguments: arguments})
		}
		return parts
	}
	large := strings.Repeat("x", 3<<20)
	for name, tt := range map[string]struct {
		parts []llm.Part
		good  bool
	}{
		"128 calls":       {call(128, "{}"), true},
		"129 calls":       {call(129, "{}"), false},
		"6 MiB":           {call(2, `{"x":"`+large+`"}`), true},
		"9 MiB":           {call(3, `{"x":"`+large+`"}`), false},
		"9 MiB of text":   {[]llm.Part{llm.Text{Text: strings.Repeat(large, 3)}}, false},
		"text and a call": {append(call(1, `{"x":"`+large+`"}`), llm.Text{Text: strings.Repeat(large, 2)}), false},
	} {
		t.Run(name, func(t *testing.T) {
			o := ask(t.Context(), serve(t, d, events(d.Fake.Events(Reply{Parts: tt.parts, Stop: llm.StopTools})...)).provider(), hello())
			if tt.good {
				if calls := o.answer.Calls(); o.err != nil || len(calls) != len(tt.parts) {
					t.Errorf("%d calls, %v", len(calls), o.err)
				}
				return
			}
			if e := o.failure(t, llm.Broken); !strings.Contains(e.Message, "more than 128") && !strings.Contains(e.Message, "longer than 8 MiB") {
				t.Errorf("it says %q", e.Message)
			}
		})
	}
}

func testNoAPI(t *testing.T, d Dialect) {
	for name, tt := range map[string]struct {
		a    answer
		want llm.Fault
	}{
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<!doctype html><title>Welcome</title>")
		}, llm.Broken},
		"words": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "hello there\n")
		}, llm.Broken},
		"404 page not found": {refusal(404, "404 page not found"), llm.Invalid},
		"a page that is not there": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			_, _ = io.WriteString(w, "<html><head><title>Welcome</title></head></html>")
		}, llm.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, d, tt.a)
			e := ask(t.Context(), s.provider(), hello()).failure(t, tt.want)
			if strings.Contains(name, "a page") && (!strings.Contains(e.Message, "web page") || !strings.Contains(e.Message, `"Welcome"`) || !strings.Contains(e.Message, s.url)) {
				t.Errorf("the error is %q", e.Message)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		h := httptest.NewServer(http.NotFoundHandler())
		h.Close()
		s := &server{t: t, d: d, url: h.URL}
		o := ask(t.Context(), s.provider(), hello())
		if e := o.failure(t, llm.Unavailable); !strings.Contains(e.Message, strings.TrimPrefix(h.URL, "http://")+": connection refused") {
			t.Errorf("the error is %q", e.Message)
		}
		if len(o.retries) != 2 {
			t.Errorf("tried again: %v", o.retries)
		}
	})
}

// testRedirects has a server redirect to another one, which must not see the key.
func testRedirects(t *testing.T, d Dialect) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the request went on to another host: %s", r.URL)
	}))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := serve(t, d, refusal(status, "", "Location", other.URL+"/v1"))
		ask(t.Context(), s.provider(), hello()).fault(t, llm.Invalid)
	}
}
