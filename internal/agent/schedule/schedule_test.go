package schedule

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/internal/errs"
)

func TestNext(t *testing.T) {
	for _, tt := range []struct{ text, zone, after, want string }{
		{"*/5 * * * *", "", "2026-01-02T03:04:05Z", "2026-01-02T03:05:00Z 2026-01-02T03:10:00Z"},
		{"0 9 * * 1-5", "Europe/Berlin", "2026-03-27T09:00:00Z", "2026-03-30T07:00:00Z 2026-03-31T07:00:00Z"}, // summer time began
		{"0 9 * * mon", "America/New_York", "2026-01-01T00:00:00Z", "2026-01-05T14:00:00Z 2026-01-12T14:00:00Z"},
		{"@daily", "Asia/Tokyo", "2026-01-01T00:00:00Z", "2026-01-01T15:00:00Z 2026-01-02T15:00:00Z"},
		{"0 0 * * 7", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z 2026-01-11T00:00:00Z"},
		{"0 0 * * 6-7", "", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z 2026-01-04T00:00:00Z"},
		{"0 0 * * 1-7/3", "", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z 2026-01-05T00:00:00Z"},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z 2032-02-29T00:00:00Z"},
		// A clock that is set shows some times twice, and some not at all.
		{"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z 2026-10-26T01:30:00Z"},
		{"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z 2026-10-25T01:30:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:30:00Z 2026-03-31T00:30:00Z"},
	} {
		s, err := Parse(tt.text, tt.zone)
		if err != nil {
			t.Errorf("Parse(%q, %q): %v", tt.text, tt.zone, err)
			continue
		}
		after, err := time.Parse(time.RFC3339, tt.after)
		if err != nil {
			t.Fatal(err)
		}
		first := s.Next(after)
		if got := first.Format(time.RFC3339) + " " + s.Next(first).Format(time.RFC3339); got != tt.want {
			t.Errorf("%q in %q after %s = %s, want %s", tt.text, tt.zone, tt.after, got, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range [][2]string{
		{"", ""}, {"* * * *", ""}, {"* * * * * *", ""}, {"61 * * * *", ""}, {"@every 1s", ""}, {"TZ=UTC * * * * *", ""}, {"CRON_TZ=UTC @daily", ""}, {"x", ""},
		{"0 0 30 2 *", ""}, {"* * * * 8", ""}, {"* * * * 1-7/0", ""}, {"*/0 * * * *", ""}, {strings.Repeat("1,", 200) + "1 * * * *", ""},
		{"* * * * *", "Local"}, {"* * * * *", "Europe/Nowhere"}, {"* * * * *", "../etc/passwd"},
	} {
		if _, err := Parse(tt[0], tt[1]); !errors.Is(err, errs.Invalid) {
			t.Errorf("Parse(%.40q, %q) = %v, want invalid", tt[0], tt[1], err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("*/5 1-3,4 * jan-mar 7", "Europe/Berlin")
	f.Fuzz(func(t *testing.T, text, zone string) {
		s, err := Parse(text, zone)
		if err != nil {
			return
		}
		now := time.Now()
		if next := s.Next(now); !next.After(now) {
			t.Errorf("%q in %q: %s is not after %s", text, zone, next, now)
		}
	})
}
