package markdown

import (
	"strings"

	"github.com/cubbyhq/cubby/internal/cli/render"
)

// row keeps a row of the table that is read.
func (r *Renderer) row(line string) {
	r.rows = append(r.rows, line)
	size := 0
	for _, row := range r.rows {
		size += len(row)
	}
	if len(r.rows) == 2 && alignments(line) == nil || size > maxTable {
		r.endTable()
	}
}

// endTable shows the table that is open, if any: rows that are none as text.
func (r *Renderer) endTable() {
	rows := r.rows
	if len(rows) == 0 {
		return
	}
	r.rows = nil
	line, prev, mode := r.line, r.prev, r.mode // of what comes after the table
	r.line, r.prev = nil, ' '
	defer func() { r.line, r.prev, r.mode = line, prev, mode }()
	var aligned []align
	if len(rows) > 1 {
		aligned = alignments(rows[1])
	}
	if aligned == nil || !r.table(append([]string{rows[0]}, rows[2:]...), aligned) {
		for _, row := range rows {
			r.textLine([]rune(row))
			r.inline(true)
			r.flow.newline()
			r.line, r.prev = nil, ' '
		}
	}
}

// align is where the text of a column stands.
type align int

const (
	left align = iota
	right
	center
)

// alignments reads the row below the head; nil: it is none.
func alignments(row string) []align {
	var list []align
	for _, cell := range cellsOf(row) {
		begins, ends := strings.HasPrefix(cell, ":"), strings.HasSuffix(cell, ":")
		if dashes := strings.Trim(cell, ":"); dashes == "" || strings.Trim(dashes, "-") != "" {
			return nil
		}
		switch {
		case begins && ends:
			list = append(list, center)
		case ends:
			list = append(list, right)
		default:
			list = append(list, left)
		}
	}
	return list
}

// cellsOf cuts a row at the bars that are not part of a cell.
func cellsOf(row string) []string {
	var cells []string
	var cell strings.Builder
	escaped, inCode := false, false
	for _, c := range strings.TrimPrefix(strings.TrimSpace(row), "|") {
		switch {
		case c == '|' && !escaped && !inCode:
			cells = append(cells, strings.TrimSpace(cell.String()))
			cell.Reset()
			continue
		case c == '`' && !escaped:
			inCode = !inCode
		}
		if escaped && c != '|' {
			cell.WriteByte('\\')
		}
		if escaped = c == '\\' && !escaped; !escaped {
			cell.WriteRune(c)
		}
	}
	if text := strings.TrimSpace(cell.String()); text != "" {
		cells = append(cells, text)
	}
	return cells
}

// table shows rows in columns. False: the terminal is too narrow for them, or they are
// no rows that people read.
func (r *Renderer) table(rows []string, aligned []align) bool {
	const between = " │ "
	n := len(aligned)
	room := r.o.Columns() - width(between)*(n-1)
	if n == 0 || room < 4*n {
		return false
	}
	cells := make([][][]span, len(rows))
	widths := make([]int, n)
	for i, row := range rows {
		cells[i] = make([][]span, n)
		for j, text := range cellsOf(row) {
			if j == n {
				break
			}
			style := Style(0)
			if i == 0 {
				style = Bold
			}
			if len(text) > maxHeld {
				return false
			}
			p := inliner{' ', r.o.Colors, func(s string, style Style) { cells[i][j] = append(cells[i][j], span{tabs(s), style}) }}
			p.read([]rune(text), true, style)
			wide := 0
			for _, s := range cells[i][j] {
				wide += width(s.text)
			}
			widths[j] = max(widths[j], wide)
		}
	}
	fit(widths, room)
	for i, row := range cells {
		lines, most := make([][][]span, n), 1
		for j := range row {
			lines[j] = wrap(row[j], widths[j])
			most = max(most, len(lines[j]))
		}
		for k := range most {
			if k == 0 {
				r.open()
			}
			for j := range n {
				var cell []span
				if k < len(lines[j]) {
					cell = lines[j][k]
				}
				r.cell(cell, widths[j], aligned[j], j == n-1)
				if j < n-1 {
					r.flow.put(between, Dim)
				}
			}
			r.flow.newline()
		}
		if i == 0 {
			rules := make([]string, n)
			for j, w := range widths {
				rules[j] = strings.Repeat("─", w)
			}
			r.flow.put(strings.Join(rules, "─┼─"), Dim)
			r.flow.newline()
		}
	}
	return true
}

func (r *Renderer) cell(cell []span, columns int, a align, last bool) {
	free := columns
	for _, s := range cell {
		free -= width(s.text)
	}
	free = max(free, 0)
	before := 0
	switch a {
	case right:
		before = free
	case center:
		before = free / 2
	case left:
	}
	r.flow.put(strings.Repeat(" ", before), 0)
	for _, s := range cell {
		r.flow.put(s.text, s.style)
	}
	if !last {
		r.flow.put(strings.Repeat(" ", free-before), 0)
	}
}

// fit makes the widest columns narrower until all have room.
func fit(widths []int, room int) {
	sum, most := 0, 0
	for j, w := range widths {
		widths[j] = max(w, 1)
		sum, most = sum+widths[j], max(most, widths[j])
	}
	for sum > room && most > 1 {
		most--
		sum = 0
		for j := range widths {
			widths[j] = min(widths[j], most)
			sum += widths[j]
		}
	}
}

// wrap breaks a cell into lines, between words where that is possible.
func wrap(cell []span, columns int) [][]span {
	var lines [][]span
	var line, word []span
	col, wide := 0, 0
	feed := func() { lines, line, col = append(lines, line), nil, 0 }
	end := func() {
		if len(word) == 0 {
			return
		}
		if col > 0 && col+1+wide > columns {
			feed()
		} else if col > 0 {
			line, col = append(line, span{" ", 0}), col+1
		}
		line, col = append(line, word...), col+wide
		word, wide = nil, 0
	}
	for _, s := range cell {
		for _, c := range s.text {
			w := render.Width(c)
			switch {
			case c == ' ':
				end()
				continue
			case wide > 0 && wide+w > columns: // a word that is too long
				end()
				feed()
			}
			word, wide = append(word, span{string(c), s.style}), wide+w
		}
	}
	end()
	if len(line) > 0 || len(lines) == 0 {
		feed()
	}
	for i := range lines {
		lines[i] = joined(lines[i])
	}
	return lines
}

// joined puts neighbours of one style together.
func joined(line []span) []span {
	var out []span
	for _, s := range line {
		if n := len(out); n > 0 && out[n-1].style == s.style {
			out[n-1].text += s.text
			continue
		}
		out = append(out, s)
	}
	return out
}
