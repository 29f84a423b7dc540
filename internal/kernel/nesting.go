package kernel

// MaxNesting is how deep the JSON of an [Output] may be for those who read it
// on: deeper than anything that is drawn, and not too deep for readers that go
// down a tree by calling themselves.
const MaxNesting = 128

// Nesting is how deep a JSON text goes; what is no JSON seems to go somewhere.
func Nesting(text []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}
