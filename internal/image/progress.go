package image

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress is told how an image is coming along. It is called from one
// goroutine at a time; nil is allowed everywhere.
type Progress func(Step)

// Step is one report of progress. Done and Total count bytes, unless Items.
type Step struct {
	Stage string // "downloading", "unpacking", …
	Done  int64
	Total int64 // 0: unknown
	Items bool  // Done and Total count things, not bytes
}

func (p Progress) report(s Step) {
	if p != nil {
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

// Show returns a Progress that draws a bar per stage on w where w is a
// terminal, and otherwise prints a line per stage and every ten seconds.
func Show(w io.Writer) Progress {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return bars(w)
	}
	return lines(w, time.Now)
}

func bars(w io.Writer) Progress {
	var bar *progressbar.ProgressBar
	var stage string
	return func(s Step) {
		if bar == nil || s.Stage != stage {
			if bar != nil {
				_ = bar.Finish()
				fmt.Fprintln(w)
			}
			stage = s.Stage
			total := s.Total
			if total <= 0 {
				total = -1 // a spinner
			}
			bar = progressbar.NewOptions64(total,
				progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(fmt.Sprintf("%-12s", s.Stage)),
				progressbar.OptionShowBytes(!s.Items), progressbar.OptionShowCount(), progressbar.OptionSetWidth(30),
				progressbar.OptionThrottle(100*time.Millisecond))
		}
		if s.Total > 0 && bar.GetMax64() != s.Total {
			bar.ChangeMax64(s.Total)
		}
		_ = bar.Set64(s.Done)
		if s.Total > 0 && s.Done >= s.Total {
			fmt.Fprintln(w)
			bar = nil
		}
	}
}

func lines(w io.Writer, now func() time.Time) Progress {
	const interval = 10 * time.Second
	var stage string
	var last time.Time
	return func(s Step) {
		t := now()
		if s.Stage == stage && t.Sub(last) < interval {
			return
		}
		first := s.Stage != stage
		stage, last = s.Stage, t
		switch {
		case first && s.Done == 0:
			fmt.Fprintf(w, "%s\n", s.Stage)
		case s.Items && s.Total > 0:
			fmt.Fprintf(w, "%s %d/%d\n", s.Stage, s.Done, s.Total)
		case s.Items:
			fmt.Fprintf(w, "%s %d\n", s.Stage, s.Done)
		case s.Total > 0:
			fmt.Fprintf(w, "%s %s of %s\n", s.Stage, megabytes(s.Done), megabytes(s.Total))
		default:
			fmt.Fprintf(w, "%s %s\n", s.Stage, megabytes(s.Done))
		}
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
