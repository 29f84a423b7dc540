package bench

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Report is what one run measured.
type Report struct {
	Machine  Machine   `json:"machine"`
	Image    string    `json:"image"`
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`
	Quick    bool      `json:"quick,omitempty"`
	Sections []Section `json:"sections"`
	Notes    []string  `json:"notes,omitempty"`
}

// Section is one table.
type Section struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Rows  []Row  `json:"rows"`
	Note  string `json:"note,omitempty"`
}

// Row is one figure: times with percentiles, or a single value.
type Row struct {
	Name string `json:"name"`
	N    int    `json:"n,omitempty"`
	Unit string `json:"unit"` // "ms" for times
	// P50 is the figure itself where there is only one.
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95,omitempty"`
	P99 float64 `json:"p99,omitempty"`
	// Floor names the row that this one stands on, Ratio is P50 over its.
	Floor string  `json:"floor,omitempty"`
	Ratio float64 `json:"ratio,omitempty"`
	// Goal is what P50 should reach: at most, or with AtLeast at least.
	Goal    float64 `json:"goal,omitempty"`
	AtLeast bool    `json:"at_least,omitempty"`
	Met     *bool   `json:"met,omitempty"`
}

// section adds an empty table.
func (r *Report) section(name, title string) *Section {
	r.Sections = append(r.Sections, Section{Name: name, Title: title})
	return &r.Sections[len(r.Sections)-1]
}

// times adds a row of times; a goal of 0 is none.
func (s *Section) times(name string, v sample, goal float64) *Row {
	if len(v) == 0 {
		return &Row{}
	}
	s.Rows = append(s.Rows, Row{
		Name: name, N: len(v), Unit: "ms", P50: ms(v.quantile(0.5)), P95: ms(v.quantile(0.95)), P99: ms(v.quantile(0.99)), Goal: goal,
	})
	return s.last().judged()
}

// value adds a row of one figure.
func (s *Section) value(name, unit string, v float64, n int, goal float64, atLeast bool) *Row {
	s.Rows = append(s.Rows, Row{Name: name, N: n, Unit: unit, P50: round(v), Goal: goal, AtLeast: atLeast})
	return s.last().judged()
}

func (s *Section) last() *Row { return &s.Rows[len(s.Rows)-1] }

func (r *Row) judged() *Row {
	if r.Goal > 0 {
		met := r.P50 <= r.Goal
		if r.AtLeast {
			met = r.P50 >= r.Goal
		}
		r.Met = &met
	}
	return r
}

// over sets the floor of a row, when that was measured.
func (s *Section) over(row, floor string) {
	var r, f *Row
	for i := range s.Rows {
		switch s.Rows[i].Name {
		case row:
			r = &s.Rows[i]
		case floor:
			f = &s.Rows[i]
		}
	}
	if r != nil && f != nil && f.P50 > 0 {
		r.Floor, r.Ratio = floor, math.Round(100*r.P50/f.P50)/100
	}
}

// within is over with a goal that is a multiple of the floor.
func (s *Section) within(row, floor string, times float64) {
	s.over(row, floor)
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Name == row && r.Ratio > 0 {
			r.Goal = round(r.P50 / r.Ratio * times)
			r.judged()
		}
	}
}

// round keeps three digits.
func round(v float64) float64 {
	if v == 0 || math.Abs(v) >= 100 {
		return math.Round(v)
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// Markdown writes the report as it stands in docs/performance.md.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, %s. %d CPUs (%s), %.0f GiB, %s, kernel %s, cgroups %s.\n", r.Began.Format("2006-01-02"), m.Cubby,
		m.CPUs, m.CPU, float64(m.Memory)/(1<<30), m.OS, m.Kernel, m.Cgroups)
	fmt.Fprintf(&b, "Image %s. %s. Load %s before. %.0f s", r.Image, strings.Join(m.Runtimes, ", "), m.Load, r.Seconds)
	if r.Quick {
		b.WriteString("; quick: few repetitions")
	}
	b.WriteString(".\n")
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n### %s\n\n", s.Title)
		s.markdown(&b)
		if s.Note != "" {
			fmt.Fprintf(&b, "\n%s\n", s.Note)
		}
	}
	if len(r.Notes) > 0 {
		b.WriteString("\n### Notes\n\n")
		for _, n := range r.Notes {
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(n, "\n", " "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown writes a table that is aligned also as plain text, without the
// columns that no row has.
func (s *Section) markdown(b *strings.Builder) {
	percentiles, floors, goals := false, false, false
	for _, r := range s.Rows {
		percentiles = percentiles || r.P95 > 0
		floors = floors || r.Floor != ""
		goals = goals || r.Goal > 0
	}
	head := []string{"", "n"}
	if percentiles {
		head = append(head, "p50", "p95", "p99")
	} else {
		head = append(head, "value")
	}
	if floors {
		head = append(head, "over")
	}
	if goals {
		head = append(head, "goal")
	}
	rows := [][]string{head}
	for _, r := range s.Rows {
		row := []string{r.Name, strconv.Itoa(r.N), figure(r.P50, r.Unit)}
		if percentiles {
			row = append(row, blank(r.P95, r.Unit), blank(r.P99, r.Unit))
		}
		if floors {
			over := ""
			if r.Floor != "" {
				over = fmt.Sprintf("%.2f × %s", r.Ratio, r.Floor)
			}
			row = append(row, over)
		}
		if goals {
			row = append(row, r.goal())
		}
		rows = append(rows, row)
	}
	width := make([]int, len(head))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for n, row := range rows {
		b.WriteString("|")
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 || i == len(row)-1 && (floors || goals) || floors && head[i] == "over" {
				b.WriteString(" " + cell + pad + " |")
			} else {
				b.WriteString(" " + pad + cell + " |")
			}
		}
		b.WriteString("\n")
		if n > 0 {
			continue
		}
		b.WriteString("|")
		for i := range row {
			line := strings.Repeat("-", width[i]+1)
			if head[i] == "" || head[i] == "over" || head[i] == "goal" {
				b.WriteString(line + "-|")
			} else {
				b.WriteString(line + ":|")
			}
		}
		b.WriteString("\n")
	}
}

func (r *Row) goal() string {
	if r.Goal == 0 {
		return ""
	}
	sign, mark := "≤", "missed"
	if r.AtLeast {
		sign = "≥"
	}
	if r.Met != nil && *r.Met {
		mark = "met"
	}
	return fmt.Sprintf("%s %s %s", sign, figure(r.Goal, r.Unit), mark)
}

func figure(v float64, unit string) string {
	text := strconv.FormatFloat(round(v), 'f', -1, 64)
	if unit == "" {
		return text
	}
	return text + " " + unit
}

func blank(v float64, unit string) string {
	if v == 0 {
		return ""
	}
	return figure(v, unit)
}
