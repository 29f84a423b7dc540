package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Goals of the agent: what it adds to the model's first word and to each further one,
// in ms, and what a hundred streams take, in MB.
const (
	firstWordGoal = 20
	chunkGoal     = 5
	streamsGoal   = 150
	agentStreams  = 100
)

// agent measures what the agent adds to its model, beside the same client that asks
// the model itself.
func (b *bench) agent(ctx context.Context) error {
	if b.Remote != nil {
		b.note("agent: left out, because it needs a daemon of its own")
		return nil
	}
	m, err := startModel(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	dir, err := b.ensureDir("agent")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.environ = append(b.environ, "OPENAI_BASE_URL="+m.url+"/v1", "OPENAI_API_KEY=bench")
	defer func() { b.environ = nil }()
	p, err := b.startDaemon(ctx, dir, "--agent-model=openai/bench", "--max-agent-runs-per-tenant=0")
	if err != nil {
		return err
	}
	defer p.stop()

	s := b.report.section("agent", "The agent: what it adds to its model")
	n := b.count(200, 30)
	direct, err := m.repeat(ctx, n, m.directly)
	if err != nil {
		return err
	}
	through, err := m.repeat(ctx, n, func(ctx context.Context, words int) (heard, error) { return m.through(ctx, p.url, words) })
	if err != nil {
		return err
	}
	s.times("direct: first word", direct.first, 0)
	s.times("agent: first word", through.first, 0)
	s.over("agent: first word", "direct: first word")
	s.value("agent: added to the first word", "ms", ms(through.first.quantile(0.5))-ms(direct.first.quantile(0.5)), n, firstWordGoal, false)
	s.times("direct: a word on its way", direct.later, 0)
	s.times("agent: a word on its way", through.later, 0)
	s.value("agent: added to a word", "ms", ms(through.later.quantile(0.5))-ms(direct.later.quantile(0.5)), len(through.later), chunkGoal, false)

	before := statusNumber(p.pid(), "VmRSS")
	most, err := m.together(ctx, p, agentStreams)
	if err != nil {
		return err
	}
	s.value(fmt.Sprintf("daemon, resident, with %d open streams", agentStreams), "MB", float64(most)/1024, 1, streamsGoal, false)
	s.value("of that before them", "MB", float64(before)/1024, 1, 0, false)
	s.Note = "The model is a program of our own that answers at once, in OpenAI's protocol, a word every 10 ms with the time at which it was sent. " +
		"A first word is from the request to it; through the agent that is a new thread's first run, over /agent with the stream modes of a chat. " +
		"Client, daemon and model share this machine's CPUs."
	return nil
}

// heard is what a client saw of answers.
type heard struct {
	first sample // from the request to the first word
	later sample // from the sending of a word to its arrival
}

// model is a provider that speaks OpenAI's protocol: it says as many words as the
// question asks for, each the time at which it was sent.
type model struct {
	url    string
	server *http.Server
	hold   chan struct{} // answers of "hold" end when it is closed
	held   chan struct{} // told when one is held
	once   sync.Once
}

func startModel(ctx context.Context) (*model, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{url: "http://" + l.Addr().String(), hold: make(chan struct{}), held: make(chan struct{}, agentStreams)}
	m.server = &http.Server{Handler: http.HandlerFunc(m.serve), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = m.server.Serve(l) }() // until close
	return m, nil
}

func (m *model) close() {
	m.release()
	_ = m.server.Close()
}

func (m *model) release() { m.once.Do(func() { close(m.hold) }) }

const wordEvery = 10 * time.Millisecond

func (m *model) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flusher, _ := w.(http.Flusher)
	say := func(text, finish string) {
		stop := "null"
		if finish != "" {
			stop = strconv.Quote(finish)
		}
		fmt.Fprintf(w, "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%q},\"finish_reason\":%s}]}\n\n", text, stop)
		flusher.Flush()
	}
	words := wordsOf(body)
	for i := range words {
		if i > 0 {
			time.Sleep(wordEvery)
		}
		say(strconv.FormatInt(time.Now().UnixNano(), 10)+" ", "")
	}
	if bytes.Contains(body, []byte(" and hold")) {
		m.held <- struct{}{}
		select {
		case <-m.hold:
		case <-r.Context().Done():
			return
		}
	}
	say("", "stop")
	fmt.Fprint(w, "data: [DONE]\n\n")
}

// wordsOf reads how many words a question asks for: "words: 5".
func wordsOf(body []byte) int {
	_, rest, _ := bytes.Cut(body, []byte("words: "))
	n := 0
	for _, c := range rest {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return max(1, n)
}

// repeat asks n times, after a few that warm up.
func (m *model) repeat(ctx context.Context, n int, ask func(context.Context, int) (heard, error)) (all heard, err error) {
	const words = 20
	for i := range n + 3 {
		h, err := ask(ctx, words)
		if err != nil {
			return all, err
		}
		if i >= 3 {
			all.first, all.later = append(all.first, h.first...), append(all.later, h.later...)
		}
	}
	return all, nil
}

// directly asks the model itself.
func (m *model) directly(ctx context.Context, words int) (heard, error) {
	body := fmt.Sprintf(`{"model":"bench","stream":true,"messages":[{"role":"user","content":"words: %d"}]}`, words)
	return listen(ctx, m.url+"/v1/chat/completions", body, func(data []byte) string {
		var piece struct {
			Choices []struct {
				Delta struct{ Content string }
			}
		}
		if json.Unmarshal(data, &piece) != nil || len(piece.Choices) == 0 {
			return ""
		}
		return piece.Choices[0].Delta.Content
	})
}

// through asks the agent.
func (m *model) through(ctx context.Context, daemon string, words int) (heard, error) {
	thread, err := newThread(ctx, daemon)
	if err != nil {
		return heard{}, err
	}
	return listen(ctx, daemon+"/agent/threads/"+thread+"/runs/stream", agentRun(fmt.Sprintf("words: %d", words)), pieceOf)
}

func agentRun(text string) string {
	return fmt.Sprintf(`{"assistant_id":"agent","input":{"messages":[{"role":"user","content":%q}]},"stream_mode":["values","messages-tuple","custom"]}`, text)
}

// pieceOf is the text of a message's piece; "" is another event.
func pieceOf(data []byte) string {
	var pair []json.RawMessage
	var piece struct{ Content string }
	if json.Unmarshal(data, &pair) != nil || len(pair) != 2 || json.Unmarshal(pair[0], &piece) != nil {
		return ""
	}
	return piece.Content
}

func newThread(ctx context.Context, daemon string) (string, error) {
	res, err := post(ctx, daemon+"/agent/threads", "{}")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var made struct {
		ID string `json:"thread_id"`
	}
	err = json.NewDecoder(res.Body).Decode(&made)
	return made.ID, err
}

func post(ctx context.Context, url, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err == nil && res.StatusCode >= 300 {
		defer res.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000)) // for the message
		return nil, fmt.Errorf("%s: %s: %s", url, res.Status, text)
	}
	return res, err
}

// listen posts a question and times the words of the answer, to its end.
func listen(ctx context.Context, url, body string, word func(data []byte) string) (h heard, err error) {
	began := time.Now()
	res, err := post(ctx, url, body)
	if err != nil {
		return h, err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !isData {
			continue
		}
		sent, err := strconv.ParseInt(strings.TrimSpace(word(bytes.TrimSpace(data))), 10, 64)
		if err != nil {
			continue
		}
		now := time.Now()
		if len(h.first) == 0 {
			h.first = append(h.first, now.Sub(began))
			continue
		}
		h.later = append(h.later, now.Sub(time.Unix(0, sent)))
	}
	if err := lines.Err(); err != nil {
		return h, err
	}
	if len(h.first) == 0 {
		return h, errors.New("the answer has no word")
	}
	return h, nil
}

// together holds n runs open at once and returns the memory of the daemon then, in KiB.
func (m *model) together(ctx context.Context, p *process, n int) (kib int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	for range n {
		g.Go(func() error {
			thread, err := newThread(ctx, p.url)
			if err != nil {
				return err
			}
			_, err = listen(ctx, p.url+"/agent/threads/"+thread+"/runs/stream", agentRun("words: 20 and hold"), pieceOf)
			return err
		})
	}
	g.Go(func() error {
		defer m.release()
		for range n {
			select {
			case <-m.held:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		kib = statusNumber(p.pid(), "VmRSS")
		return nil
	})
	return kib, g.Wait()
}
