package bench

import (
	"math"
	"slices"
	"time"
)

// sample is a set of measured times.
type sample []time.Duration

func (s *sample) add(d time.Duration) { *s = append(*s, d) }

// quantile is the smallest value that at least q of the sample does not
// exceed; 0 of an empty one.
func (s sample) quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Clone(s)
	slices.Sort(sorted)
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// ms is a time in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

// median of plain numbers.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sorted := slices.Clone(v)
	slices.Sort(sorted)
	return sorted[(len(sorted)-1)/2]
}
