package rest

import (
	"context"
	"net/http"
	"time"
)

// Thread is one that has sandboxes.
type Thread struct {
	Thread       string    `json:"thread"`
	Sandboxes    int       `json:"sandboxes" doc:"Running and stopped."`
	Running      int       `json:"running"`
	CreatedAt    time.Time `json:"created_at" doc:"Of its oldest sandbox."`
	LastActiveAt time.Time `json:"last_active_at"`
}

// ThreadList is the active threads.
type ThreadList struct {
	Threads []Thread `json:"threads" nullable:"false"`
}

// ThreadDestroyed says what a destroyed thread had.
type ThreadDestroyed struct {
	Destroyed int `json:"destroyed" doc:"Sandboxes."`
}

func (d *door) threadRoutes() {
	register(d, operation{
		id: "list-threads", method: http.MethodGet, path: "/v1/threads", tag: "threads", summary: "List threads that have sandboxes",
	}, func(ctx context.Context, _ *struct{}) (*struct{ Body ThreadList }, error) {
		threads, err := d.Core.Threads().List(ctx)
		if err != nil {
			return nil, err
		}
		out := ThreadList{Threads: make([]Thread, len(threads))}
		for i, t := range threads {
			out.Threads[i] = Thread{
				Thread: t.Name, Sandboxes: t.Sandboxes, Running: t.Running, CreatedAt: t.CreatedAt.UTC(), LastActiveAt: t.LastActiveAt.UTC(),
			}
		}
		return &struct{ Body ThreadList }{out}, nil
	})
	register(d, operation{
		id: "destroy-thread", method: http.MethodDelete, path: "/v1/threads/{thread}", tag: "threads",
		summary:     "Destroy the sandboxes of a thread and remove its uploads",
		description: "A thread that has nothing is no error. When it fails in the middle, the same request ends it.",
	}, func(ctx context.Context, in *struct {
		Thread string `path:"thread"`
	}) (*struct{ Body ThreadDestroyed }, error) {
		n, err := d.Core.Threads().Destroy(ctx, in.Thread)
		if err != nil {
			return nil, err
		}
		return &struct{ Body ThreadDestroyed }{ThreadDestroyed{n}}, nil
	})
}
