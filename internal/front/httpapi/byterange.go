package httpapi

import (
	"strconv"
	"strings"
)

// ByteRange is what a Range header asks for; last < 0 is the end.
type ByteRange struct {
	first, last int64 // first < 0: the last -first bytes
}

// ParseRange reads a header of one range. Like the rest of the world it
// ignores what it does not understand: the answer is then the whole file.
func ParseRange(header string) (ByteRange, bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	from, to, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !ok || !dash || strings.ContainsAny(spec, ", ") {
		return ByteRange{}, false
	}
	digits := func(s string) (int64, bool) {
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil && n >= 0 && s[0] != '+'
	}
	if from == "" {
		n, ok := digits(to)
		return ByteRange{first: -n, last: -1}, ok && n > 0
	}
	first, ok := digits(from)
	if !ok || to == "" {
		return ByteRange{first, -1}, ok
	}
	last, ok := digits(to)
	return ByteRange{first, last}, ok && last >= first
}

// Resolve gives offset and length within a file; ok is false when nothing of
// the file is in the range.
func (b ByteRange) Resolve(size int64) (offset, length int64, ok bool) {
	if b.first < 0 {
		offset = max(0, size+b.first)
		return offset, size - offset, size > 0
	}
	end := size
	if b.last >= 0 {
		end = min(size, b.last+1)
	}
	return b.first, end - b.first, b.first < size
}
