package tasks

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"

	"github.com/cubbyhq/cubby/internal/task"
)

// maxReply bounds a line of the standard input.
const maxReply = 64 << 10

// replies are what the host answers. Its methods are safe for concurrent use.
type replies struct {
	out    *recorder
	cancel func()

	mu        sync.Mutex
	questions map[string]*question
	asked     int
	acts      map[int64]chan task.Acted
	requested int64
	over      bool // no question is put any more
}

// question is a permission that is waited for.
type question struct {
	options []task.Option
	answer  chan string
}

func newReplies(out *recorder, cancel func()) *replies {
	return &replies{out: out, cancel: cancel, questions: make(map[string]*question), acts: make(map[int64]chan task.Acted)}
}

// read takes lines until the input ends, which changes nothing. What cannot be
// read is passed over.
func (r *replies) read(in io.Reader) {
	lines := bufio.NewReaderSize(in, maxReply)
	for {
		line, err := lines.ReadSlice('\n')
		long := false
		for errors.Is(err, bufio.ErrBufferFull) {
			long = true
			_, err = lines.ReadSlice('\n')
		}
		var reply task.Reply
		if !long && json.Unmarshal(line, &reply) == nil {
			r.take(reply)
		}
		if err != nil {
			return
		}
	}
}

func (r *replies) take(reply task.Reply) {
	if reply.Cancel {
		r.cancel()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := reply.Permission; a != nil {
		if q := r.questions[a.ID]; q != nil && q.offers(a.Option) {
			q.answer <- a.Option
			delete(r.questions, a.ID)
		}
	}
	if a := reply.Acted; a != nil {
		if c := r.acts[a.ID]; c != nil {
			c <- *a
			delete(r.acts, a.ID)
		}
	}
}

func (q *question) offers(option string) bool {
	for _, o := range q.options {
		if o.ID == option {
			return true
		}
	}
	return false
}

// outcomeCancelled is the outcome of a question that nobody answered.
const outcomeCancelled = "cancelled"

// ask puts a question and returns the option that was chosen, or
// outcomeCancelled.
func (r *replies) ask(ctx context.Context, tool task.Tool, options []task.Option) string {
	q := &question{options: options, answer: make(chan string, 1)}
	r.mu.Lock()
	r.asked++
	id := "permission-" + strconv.Itoa(r.asked)
	if !r.over {
		r.questions[id] = q
	}
	over := r.over
	r.mu.Unlock()
	if over {
		return outcomeCancelled
	}
	p := task.Permission{ID: id, Status: "pending", Tool: tool, Options: append([]task.Option(nil), options...)}
	r.out.record(task.PermissionType, &p)
	outcome := outcomeCancelled
	select {
	case outcome = <-q.answer:
	case <-ctx.Done():
	}
	r.mu.Lock()
	delete(r.questions, id)
	r.mu.Unlock()
	p = task.Permission{ID: id, Status: "resolved", Tool: tool, Options: append([]task.Option(nil), options...), Outcome: outcome}
	r.out.record(task.PermissionType, &p)
	return outcome
}

// dismiss cancels every question, and those to come.
func (r *replies) dismiss() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for id, q := range r.questions {
		q.answer <- outcomeCancelled
		delete(r.questions, id)
	}
}

// act asks the host for an act; ok is false when it did not answer before ctx
// ended.
func (r *replies) act(ctx context.Context, act task.Act) (acted task.Acted, ok bool) {
	answer := make(chan task.Acted, 1)
	r.mu.Lock()
	r.requested++
	id := r.requested
	r.acts[id] = answer
	r.mu.Unlock()
	r.out.record(task.RequestType, &task.Request{ID: id, Act: act})
	select {
	case acted = <-answer:
		return acted, true
	case <-ctx.Done():
		return task.Acted{}, false
	}
}
