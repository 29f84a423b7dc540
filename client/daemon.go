package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Health returns nil when a daemon answers. It needs no token.
func (c *Client) Health(ctx context.Context) error {
	res, err := c.send(ctx, call{method: http.MethodGet, path: "/healthz"})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, maxErrorBody))
	return c.readError(ctx, err)
}

// maxMetrics bounds an answer that is kept in memory.
const maxMetrics = 16 << 20

// Metrics returns the daemon's metrics in the Prometheus text format. A token of a
// tenant gets [Forbidden].
func (c *Client) Metrics(ctx context.Context) (string, error) {
	res, err := c.send(ctx, call{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxMetrics))
	return string(text), c.readError(ctx, err)
}

// Problem is something that keeps a daemon from being ready.
type Problem struct {
	Part    string `json:"part"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Ready returns what keeps the daemon from serving well; none when it is
// ready. An error means that the daemon could not be asked.
func (c *Client) Ready(ctx context.Context) ([]Problem, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base.String()+"/readyz", nil)
	if err != nil {
		return nil, &Error{Code: InvalidRequest, Message: err.Error(), cause: err}
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return nil, nil
	case http.StatusServiceUnavailable:
		var answer struct {
			Problems []Problem `json:"problems"`
		}
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
			return nil, c.transportError(ctx, err)
		}
		return answer.Problems, nil
	}
	return nil, errorOf(res)
}
