package image

import (
	"io"
	"sync"
)

// Progress is told how an image is coming along. It is called from one
// goroutine at a time; nil is allowed everywhere.
type Progress func(Step)

// Step is one report of progress. Done and Total count bytes, unless Items.
type Step struct {
	Stage string `json:"stage"` // "downloading", "unpacking", …
	Done  int64  `json:"done"`
	Total int64  `json:"total"` // 0: unknown
	Items bool   `json:"items"` // Done and Total count things, not bytes
}

func (p Progress) report(s Step) {
	if p != nil {
		p(s)
	}
}

// oneAtATime lets several goroutines report.
func (p Progress) oneAtATime() Progress {
	if p == nil {
		return nil
	}
	var mu sync.Mutex
	return func(s Step) {
		mu.Lock()
		defer mu.Unlock()
		p(s)
	}
}

// reportEvery is how much more must have happened before bytes are reported
// again.
const reportEvery = 1 << 20

// counter reports the bytes that pass through a reader.
type counter struct {
	r        io.Reader
	p        Progress
	step     Step
	reported int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.step.Done += int64(n)
	if c.step.Done-c.reported >= reportEvery || err == io.EOF && c.step.Done != c.reported {
		c.reported = c.step.Done
		c.p.report(c.step)
	}
	return n, err
}
