// Package format writes what the commands say: JSON for programs, and for people
// tables, sizes, ages and durations. Text that comes from outside is shown and
// never obeyed by a terminal. It knows nothing of commands and of sandboxes.
package format

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// JSON writes v indented, one field per line.
func JSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Table writes aligned columns. Cells come from outside, so control characters
// in them are shown and not obeyed. A nil head is
// none.
func Table(w io.Writer, head []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	if head != nil {
		fmt.Fprintln(tw, strings.Join(head, "\t"))
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Printable(cell)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// Printable replaces what could move a terminal's cursor or break a row.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// Text is Printable for text of several lines: ends of lines and tabs stay, and
// carriage returns are left out.
func Text(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\r", ""), "\n")
	for i, line := range lines {
		cells := strings.Split(line, "\t")
		for j, cell := range cells {
			cells[j] = Printable(cell)
		}
		lines[i] = strings.Join(cells, "\t")
	}
	return strings.Join(lines, "\n")
}

// Age is a time in the past as people say it.
func Age(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := now.Sub(t)
	switch {
	case d < 2*time.Second:
		return "now"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd ago", int(d.Hours()/24))
	}
}

// Size is a number of bytes as people say it.
func Size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	if f < 10 && f != float64(int64(f)) {
		return fmt.Sprintf("%.1f %ciB", f, units[u])
	}
	return fmt.Sprintf("%.0f %ciB", f, units[u])
}

// Seconds is a duration of the API as people say it; 0 is none.
func Seconds(s float64) string {
	if s == 0 {
		return "none"
	}
	return time.Duration(s * float64(time.Second)).String()
}

// Digest is a digest as people tell it from others.
func Digest(d string) string {
	if len(d) > 12 {
		return d[:12]
	}
	return d
}
