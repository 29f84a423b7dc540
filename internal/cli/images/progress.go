package images

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/cli/tty"
	"github.com/cubbyhq/cubby/internal/image"
)

// progress shows how an image is coming along: a bar on a terminal, otherwise
// one line per stage.
type progress struct {
	w     io.Writer
	tty   bool
	stage string
	bar   *progressbar.ProgressBar
}

func newProgress(cmd *cobra.Command) *progress {
	_, isTTY := tty.File(cmd.ErrOrStderr())
	return &progress{w: cmd.ErrOrStderr(), tty: isTTY}
}

func (p *progress) step(s image.Step) {
	if s.Stage != p.stage {
		p.done()
		p.stage = s.Stage
		if !p.tty {
			fmt.Fprintf(p.w, "cubby: %s\n", s.Stage)
			return
		}
		p.bar = p.newBar(s)
	}
	if p.bar == nil {
		return
	}
	if s.Total > 0 && s.Total != p.bar.GetMax64() {
		p.bar.ChangeMax64(s.Total)
	}
	_ = p.bar.Set64(s.Done) // a bar that cannot be drawn is no error
}

func (p *progress) newBar(s image.Step) *progressbar.ProgressBar {
	total := s.Total
	if total <= 0 {
		total = -1
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.w),
		progressbar.OptionSetDescription(fmt.Sprintf("%-12s", s.Stage)),
		progressbar.OptionShowBytes(!s.Items),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionUseIECUnits(true),
	)
}

// done ends the current stage's line.
func (p *progress) done() {
	if p.bar == nil {
		return
	}
	_ = p.bar.Exit() // as above
	fmt.Fprintln(p.w)
	p.bar = nil
}
