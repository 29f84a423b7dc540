package conversation

import (
	"iter"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Refs are the places of messages in their thread, in the order of the state. The
// places of a thread's messages count up from 1, so that most lists are a few spans;
// as text they are "1-40,43".
type Refs struct{ spans []span }

type span struct{ first, last int64 }

// Add puts a place at the end.
func (r *Refs) Add(n int64) {
	if k := len(r.spans); k > 0 && r.spans[k-1].last+1 == n {
		r.spans[k-1].last = n
		return
	}
	r.spans = append(r.spans, span{n, n})
}

// Len is how many there are.
func (r Refs) Len() int {
	n := int64(0)
	for _, s := range r.spans {
		n += s.last - s.first + 1
	}
	return int(n)
}

// Spans yields the first and the last place of each row of places that follow each
// other.
func (r Refs) Spans() iter.Seq2[int64, int64] {
	return func(yield func(first, last int64) bool) {
		for _, s := range r.spans {
			if !yield(s.first, s.last) {
				return
			}
		}
	}
}

// All yields the places.
func (r Refs) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, s := range r.spans {
			for n := s.first; n <= s.last; n++ {
				if !yield(n) {
					return
				}
			}
		}
	}
}

func (r Refs) String() string {
	var b strings.Builder
	for i, s := range r.spans {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(s.first, 10))
		if s.last > s.first {
			b.WriteByte('-')
			b.WriteString(strconv.FormatInt(s.last, 10))
		}
	}
	return b.String()
}

// maxRefs bounds what a text may stand for, so that a damaged one is no flood.
const maxRefs = 1 << 20

// ParseRefs reads what String wrote.
func ParseRefs(text string) (Refs, error) {
	var r Refs
	if text == "" {
		return r, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isSpan := strings.Cut(part, "-")
		if !isSpan {
			to = from
		}
		first, err1 := strconv.ParseInt(from, 10, 64)
		last, err2 := strconv.ParseInt(to, 10, 64)
		if err1 != nil || err2 != nil || first < 1 || last < first || last-first >= maxRefs || len(r.spans) >= maxRefs {
			return Refs{}, errs.E(errs.Internal, "a list of messages is damaged")
		}
		r.spans = append(r.spans, span{first, last})
	}
	return r, nil
}
