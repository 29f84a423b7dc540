package wire

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"time"

	"github.com/cubbyhq/cubby/internal/llm"
)

// Fetch makes a call whose answer is one JSON document, as a list of models, and
// decodes it. It is made again as a stream is.
func (c *Client) Fetch(ctx context.Context, call Call, into any) error {
	for try := 1; ; try++ {
		err := c.fetch(ctx, call, into)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
		pause, again := c.again(err, try)
		if !again {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

func (c *Client) fetch(ctx context.Context, call Call, into any) *llm.Error {
	res, watch, fault := c.do(ctx, call, "application/json")
	if fault != nil {
		return fault
	}
	defer watch.stop()
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(watch.reader(res.Body), maxBody))
	if err != nil {
		return c.unanswered(watch.cause(err))
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); isPage(kind, body) {
		return c.page(res.StatusCode, body)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return c.fault(llm.Broken, res.StatusCode, "its answer is no JSON: "+string(body[:min(len(body), maxText)]), err)
	}
	return nil
}
