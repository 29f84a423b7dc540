package prompt

import (
	"strings"
)

// unfinished guesses whether more lines belong to a cell, as people expect it
// of a prompt: an open bracket or string, a line that goes on, and in Python a
// block, which an empty line ends. Two empty lines end everything.
func unfinished(language string, lines []string) bool {
	if givenUp(lines) {
		return false
	}
	last := strings.TrimSpace(lines[len(lines)-1])
	text := strings.Join(lines, "\n")
	rules, known := languageRules[language]
	if !known {
		rules = syntax{}
	}
	s := rules.scan(text)
	switch {
	case s.open, strings.HasSuffix(s.last, `\`) && s.last != `\`:
		return true
	case language == "python":
		return last != "" && s.block || last != "" && strings.HasPrefix(text, "%%")
	case language == "r":
		return last != "" && endsInOperator(s.last)
	}
	return false
}

// givenUp reports that lines end with two empty ones, which end everything.
func givenUp(lines []string) bool {
	n := len(lines)
	return n > 2 && strings.TrimSpace(lines[n-1]) == "" && strings.TrimSpace(lines[n-2]) == ""
}

// syntax is as much of a language as it takes to find its brackets.
type syntax struct {
	brackets bool
	comment  string // begins one that ends with the line
	long     string // quotes of strings that go on over lines
	short    string // quotes of strings that do not
	triple   bool   // three short quotes make a long one
	block    bool   // a colon at the end of a line begins one
}

var languageRules = map[string]syntax{
	"python": {brackets: true, comment: "#", short: `"'`, triple: true, block: true},
	"node":   {brackets: true, comment: "//", long: "`", short: `"'`},
	"r":      {brackets: true, comment: "#", long: "\"'`"},
	"bash":   {comment: "#", long: `"'`},
}

// scanned is what a text ends in.
type scanned struct {
	open  bool   // a bracket or a string
	block bool   // there is a line that begins one
	last  string // the last line, without its comment and what surrounds it
}

func (x syntax) scan(text string) scanned {
	var s scanned
	var line strings.Builder
	depth := 0
	quote := "" // that ends the string
	endLine := func() {
		s.last = strings.TrimSpace(line.String())
		line.Reset()
		if x.block && depth <= 0 && quote == "" && (strings.HasSuffix(s.last, ":") || strings.HasPrefix(s.last, "@")) {
			s.block = true
		}
	}
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		c := text[i]
		switch {
		case quote != "" && c == '\\':
			i++
		case quote != "" && strings.HasPrefix(rest, quote):
			i += len(quote) - 1
			quote = ""
			line.WriteByte('"')
		case quote != "" && c == '\n' && len(quote) == 1 && strings.Contains(x.short, quote):
			quote = "" // it ended with its line
			endLine()
		case quote != "":
		case c == '\n':
			endLine()
		case x.comment != "" && strings.HasPrefix(rest, x.comment) && (x.comment != "#" || x.brackets || i == 0 || text[i-1] == ' ' || text[i-1] == '\n'):
			if end := strings.IndexByte(rest, '\n'); end >= 0 {
				i += end - 1
			} else {
				i = len(text)
			}
		case x.triple && (strings.HasPrefix(rest, `"""`) || strings.HasPrefix(rest, "'''")):
			quote = rest[:3]
			i += 2
		case strings.IndexByte(x.long+x.short, c) >= 0:
			quote = string(c)
		default:
			if x.brackets && strings.IndexByte("([{", c) >= 0 {
				depth++
			}
			if x.brackets && strings.IndexByte(")]}", c) >= 0 {
				depth--
			}
			line.WriteByte(c)
		}
	}
	// A short string that is open now ended with the text.
	long := quote != "" && (len(quote) > 1 || strings.Contains(x.long, quote))
	if !long {
		quote = ""
	}
	endLine()
	s.open = depth > 0 || long
	return s
}

// endsInOperator reports that R expects something to follow.
func endsInOperator(line string) bool {
	for _, op := range []string{"+", "-", "*", "/", ",", "|", "&", "=", "~", "<-", "|>", "%>%", "%in%"} {
		if strings.HasSuffix(line, op) {
			return true
		}
	}
	return false
}
