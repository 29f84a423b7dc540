package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/internal/config"
)

// verdict is how a check came out.
type verdict string

const (
	good   verdict = "ok"
	warned verdict = "warning" // works, or is only needed for some things
	broken verdict = "failed"
)

// check is one line of the doctor's report.
type check struct {
	Group   string  `json:"group"`
	Name    string  `json:"name"`
	Verdict verdict `json:"verdict"`
	Detail  string  `json:"detail,omitempty"`
	Fix     string  `json:"fix,omitempty"` // what to type, or to do
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON, noBoot bool
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "check this machine, boot a sandbox of each kind, say what is missing",
		Long: `Checks what cubby needs of this machine, boots one real gVisor and one real
container sandbox from a scratch directory, and says for everything that is missing
what to type. Needs root to boot. The exit code is 1 when something is broken;
warnings are about things that only some uses need.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(configArgs(cmd), a.Environ)
			if err != nil {
				return err
			}
			d := &doctor{app: a, cmd: cmd, cfg: cfg, out: a.Stdout, color: a.colors()}
			if asJSON {
				d.out = io.Discard
			}
			d.examine(cmd.Context(), !noBoot)
			if asJSON {
				if err := printJSON(a.Stdout, d.checks); err != nil {
					return err
				}
			}
			return d.verdict()
		},
	}
	configFlags(cmd, func(k config.Key) bool { return k.Name == "image-dir" || k.Name == "data-dir" })
	cmd.Flags().BoolVar(&noBoot, "no-boot", false, "only look; boot nothing")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// colors reports whether the output is a terminal that wants them.
func (a *app) colors() bool {
	_, tty := terminal(a.Stdout)
	_, no := a.lookupEnv("NO_COLOR")
	return tty && !no
}

// doctor gathers checks and prints each as it is known.
type doctor struct {
	app    *app
	cmd    *cobra.Command
	cfg    config.Config
	out    io.Writer
	color  bool
	group  string
	checks []check
}

func (d *doctor) examine(ctx context.Context, boot bool) {
	d.section("The machine")
	d.host()
	d.section("Programs")
	d.programs(ctx)
	d.section("Room")
	d.room()
	d.section("Images and daemon")
	d.images(ctx)
	d.daemon(ctx)
	if boot {
		d.section("A real sandbox")
		d.boot(ctx)
	}
}

func (d *doctor) section(name string) {
	if d.group != "" {
		fmt.Fprintln(d.out)
	}
	d.group = name
	fmt.Fprintln(d.out, d.paint("1", name))
}

func (d *doctor) good(name, format string, args ...any) {
	d.add(check{Name: name, Verdict: good, Detail: fmt.Sprintf(format, args...)})
}

func (d *doctor) warn(name, detail, fix string) {
	d.add(check{Name: name, Verdict: warned, Detail: detail, Fix: fix})
}

func (d *doctor) fail(name, detail, fix string) {
	d.add(check{Name: name, Verdict: broken, Detail: detail, Fix: fix})
}

func (d *doctor) add(c check) {
	c.Group = d.group
	d.checks = append(d.checks, c)
	mark := map[verdict]string{good: d.paint("32", "✓"), warned: d.paint("33", "!"), broken: d.paint("31", "✗")}[c.Verdict]
	lines := strings.Split(printableLines(c.Detail), "\n")
	fmt.Fprintf(d.out, "  %s %-17s %s\n", mark, c.Name, lines[0])
	for _, line := range lines[1:] {
		fmt.Fprintf(d.out, "      %s\n", line)
	}
	if c.Fix != "" {
		fmt.Fprintf(d.out, "      %s %s\n", d.paint("36", "→"), strings.ReplaceAll(c.Fix, "\n", "\n        "))
	}
}

// printableLines keeps line breaks and replaces other control characters.
func printableLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

func (d *doctor) paint(code, s string) string {
	if !d.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// verdict sums up; an error when something is broken.
func (d *doctor) verdict() error {
	count := map[verdict]int{}
	for _, c := range d.checks {
		count[c.Verdict]++
	}
	if n := count[broken]; n > 0 {
		return fmt.Errorf("%d of %d checks failed", n, len(d.checks))
	}
	fmt.Fprintln(d.out)
	if n := count[warned]; n > 0 {
		fmt.Fprintf(d.out, "Ready; warnings: %d.\n", n)
	} else {
		fmt.Fprintln(d.out, "Ready.")
	}
	return nil
}
