package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Thread is a conversation that has sandboxes.
type Thread struct {
	Thread       string    `json:"thread"`
	Sandboxes    int       `json:"sandboxes"`
	Running      int       `json:"running"`
	CreatedAt    time.Time `json:"created_at"` // of its oldest sandbox
	LastActiveAt time.Time `json:"last_active_at"`
}

// Threads lists the threads that have sandboxes, by name.
func (c *Client) Threads(ctx context.Context) ([]Thread, error) {
	var answer struct {
		Threads []Thread `json:"threads"`
	}
	err := c.do(ctx, call{method: http.MethodGet, path: "/v1/threads"}, &answer)
	return answer.Threads, err
}

// DestroyThread destroys the sandboxes of a thread and removes its uploads. It
// returns how many sandboxes there were; none is no error.
func (c *Client) DestroyThread(ctx context.Context, thread string) (destroyed int, err error) {
	var answer struct {
		Destroyed int `json:"destroyed"`
	}
	err = c.do(ctx, call{method: http.MethodDelete, path: "/v1/threads/" + url.PathEscape(thread)}, &answer)
	return answer.Destroyed, err
}
