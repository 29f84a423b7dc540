// Package doctor examines the machine that it runs on: what cubby needs of the
// kernel, which programs, how much room, the images and the daemon; and it boots
// a real sandbox of each kind from a scratch directory. It mends nothing: for all
// that is missing it says what to type.
package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/config"
)

// Verdict is how a check came out.
type Verdict string

const (
	Good   Verdict = "ok"
	Warned Verdict = "warning" // works, or is only needed for some things
	Broken Verdict = "failed"
)

// Check is one line of the doctor's report.
type Check struct {
	Group   string  `json:"group"`
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Detail  string  `json:"detail,omitempty"`
	Fix     string  `json:"fix,omitempty"` // what to type, or to do
}

// Options says what is examined.
type Options struct {
	Config config.Config // of the daemon that this machine would run
	// Client reaches the daemon that is meant, and Images lists its images; nil
	// from it: the image directory of this machine is meant.
	Client *client.Client
	Images func(context.Context) ([]client.Image, error)
	Boot   bool      // start real sandboxes, which needs root
	Out    io.Writer // gets each check as it is known, and the sum
	Color  bool      // Out takes escape sequences
}

// Examine makes all checks. The error says that something is broken; warnings
// are none.
func Examine(ctx context.Context, o Options) ([]Check, error) {
	d := &doctor{Options: o}
	d.examine(ctx)
	return d.checks, d.verdict()
}

// doctor gathers checks and prints each as it is known.
type doctor struct {
	Options
	group  string
	checks []Check
}

func (d *doctor) examine(ctx context.Context) {
	d.section("The machine")
	d.host()
	d.section("Programs")
	d.programs(ctx)
	d.section("Room")
	d.room()
	d.section("Images and daemon")
	d.images(ctx)
	d.daemon(ctx)
	if d.Boot {
		d.section("A real sandbox")
		d.boot(ctx)
	}
}

func (d *doctor) section(name string) {
	if d.group != "" {
		fmt.Fprintln(d.Out)
	}
	d.group = name
	fmt.Fprintln(d.Out, d.paint("1", name))
}

func (d *doctor) good(name, format string, args ...any) {
	d.add(Check{Name: name, Verdict: Good, Detail: fmt.Sprintf(format, args...)})
}

func (d *doctor) warn(name, detail, fix string) {
	d.add(Check{Name: name, Verdict: Warned, Detail: detail, Fix: fix})
}

func (d *doctor) fail(name, detail, fix string) {
	d.add(Check{Name: name, Verdict: Broken, Detail: detail, Fix: fix})
}

func (d *doctor) add(c Check) {
	c.Group = d.group
	d.checks = append(d.checks, c)
	mark := map[Verdict]string{Good: d.paint("32", "✓"), Warned: d.paint("33", "!"), Broken: d.paint("31", "✗")}[c.Verdict]
	lines := strings.Split(printableLines(c.Detail), "\n")
	fmt.Fprintf(d.Out, "  %s %-17s %s\n", mark, c.Name, lines[0])
	for _, line := range lines[1:] {
		fmt.Fprintf(d.Out, "      %s\n", line)
	}
	if c.Fix != "" {
		fmt.Fprintf(d.Out, "      %s %s\n", d.paint("36", "→"), strings.ReplaceAll(c.Fix, "\n", "\n        "))
	}
}

// printableLines keeps line breaks and replaces other control characters.
func printableLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = format.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

func (d *doctor) paint(code, s string) string {
	if !d.Color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// verdict sums up; an error when something is broken.
func (d *doctor) verdict() error {
	count := map[Verdict]int{}
	for _, c := range d.checks {
		count[c.Verdict]++
	}
	if n := count[Broken]; n > 0 {
		return fmt.Errorf("%d of %d checks failed", n, len(d.checks))
	}
	fmt.Fprintln(d.Out)
	if n := count[Warned]; n > 0 {
		fmt.Fprintf(d.Out, "Ready; warnings: %d.\n", n)
	} else {
		fmt.Fprintln(d.Out, "Ready.")
	}
	return nil
}
