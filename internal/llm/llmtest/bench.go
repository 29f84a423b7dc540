package llmtest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/llm"
	"github.com/cubbyhq/cubby/internal/llm/wire"
)

const chunks = 5000

// Bench measures what a dialect adds to each chunk of a stream, beside a bare read of
// the same answer. "memory" has the stream at hand, "network" has each chunk flushed
// by a server.
func Bench(b *testing.B, d Dialect) {
	list := d.Fake.Events(Reply{Parts: []llm.Part{llm.Text{Text: "abc"}}, Stop: llm.StopEnd})
	stream := strings.Split(strings.Join(list, ""), "\n\n")
	var text string // the event with the text
	var all []string
	for _, e := range stream[:len(stream)-1] {
		e += "\n\n"
		if strings.Contains(e, `"abc"`) {
			text = e
			all = append(all, strings.Split(strings.Repeat(text+"\x00", chunks-1), "\x00")[:chunks-1]...)
		}
		all = append(all, e)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		events(all...)(w, r)
	}))
	defer server.Close()
	network := &http.Transport{}
	defer network.CloseIdleConnections()
	for name, t := range map[string]http.RoundTripper{"memory": canned(strings.Join(all, "")), "network": network} {
		client := &http.Client{Transport: t}
		b.Run(name+"/bare", func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 16<<10)
			for b.Loop() {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, server.URL, strings.NewReader("{}"))
				if err != nil {
					b.Fatal(err)
				}
				res, err := client.Do(r)
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = res.Body.Read(buf)
				}
				res.Body.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/chunks, "ns/chunk")
		})
		b.Run(name+"/dialect", func(b *testing.B) {
			b.ReportAllocs()
			p := d.New(wire.Config{Name: "somebody", BaseURL: server.URL, Key: wire.NewKey(Secret), HTTP: client})
			for b.Loop() {
				n := 0
				for e, err := range p.Stream(b.Context(), hello()) {
					if err != nil {
						b.Fatal(err)
					}
					if _, ok := e.(llm.TextDelta); ok {
						n++
					}
				}
				if n != chunks {
					b.Fatalf("%d chunks", n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/chunks, "ns/chunk")
		})
	}
}
