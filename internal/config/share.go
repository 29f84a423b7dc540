package config

import (
	"math"
	"strconv"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Share is a part of something: a percentage of it, or bytes.
type Share struct {
	Percent float64 // 0: Bytes holds
	Bytes   Bytes
}

// ParseShare reads 10% or 512MiB.
func ParseShare(text string) (Share, error) {
	number, percent := strings.CutSuffix(text, "%")
	if !percent {
		size, err := ParseBytes(text)
		return Share{Bytes: size}, err
	}
	p, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(p) || p < 0 || p > 100 {
		return Share{}, errs.E(errs.Invalid, "%q is not a percentage", text).Hint("write 10%%, or a size as 512MiB")
	}
	return Share{Percent: p}, nil
}

// Of is the share of a total, in bytes.
func (s Share) Of(total int64) int64 {
	if s.Percent > 0 {
		return int64(float64(total) / 100 * s.Percent)
	}
	return int64(s.Bytes)
}

// String gives what ParseShare reads.
func (s Share) String() string {
	if s.Percent > 0 {
		return strconv.FormatFloat(s.Percent, 'f', -1, 64) + "%"
	}
	return s.Bytes.String()
}
