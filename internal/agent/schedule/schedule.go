// Package schedule reads the schedules of crons: five fields, as crontab(5) has them, or
// @hourly and the like, in a time zone of IANA. Zones come with the program: a machine may
// have none.
package schedule

import (
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // see above

	"github.com/robfig/cron/v3"

	"github.com/cubbyhq/cubby/internal/errs"
)

// Schedule is when something happens.
type Schedule struct {
	spec cron.Schedule
	zone *time.Location
}

var parser = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// maxText bounds schedules.
const maxText = 200

// Parse reads a schedule in a zone; "" is UTC. Invalid when it is none, or never happens.
func Parse(text, zone string) (Schedule, error) {
	s := Schedule{zone: time.UTC}
	if zone == "Local" {
		return s, errs.E(errs.Invalid, "timezone: %q is no time zone", zone).Hint("use a name of IANA, as Europe/Berlin")
	}
	location, err := time.LoadLocation(zone)
	if err != nil {
		return s, errs.E(errs.Invalid, "timezone: %.60q is no time zone", zone).Hint("use a name of IANA, as Europe/Berlin")
	}
	s.zone = location
	fields := strings.Fields(text)
	invalid := func() (Schedule, error) {
		return s, errs.E(errs.Invalid, "Invalid cron schedule: %.80q", text).
			Hint("use five fields, minute hour day-of-month month day-of-week, as */5 * * * *, or @hourly, @daily, @weekly, @monthly, @yearly")
	}
	// The library takes intervals of its own, and zones within the text.
	if len(text) > maxText || strings.Contains(text, "=") || len(fields) == 0 || strings.HasPrefix(fields[0], "@every") {
		return invalid()
	}
	if len(fields) == 5 {
		fields[4] = sundays(fields[4])
	}
	if s.spec, err = parser.Parse(strings.Join(fields, " ")); err != nil {
		return invalid()
	}
	if s.Next(time.Now()).IsZero() {
		return s, errs.E(errs.Invalid, "Invalid cron schedule: %.80q never happens", text)
	}
	return s, nil
}

// Next is when it happens next after a time; zero: never. What a change of the clock
// leaves out does not happen that day, and what comes twice by it happens once, unless it
// happens every hour.
func (s Schedule) Next(after time.Time) time.Time {
	next := s.spec.Next(after.In(s.zone))
	for !next.IsZero() && s.comesAgain(next) {
		next = s.spec.Next(next)
	}
	if next.IsZero() {
		return next
	}
	return next.UTC()
}

// everyHour marks, in the library's set of hours, that all are meant.
const everyHour = 1 << 63

// comesAgain reports whether a clock that was set back shows a time again.
func (s Schedule) comesAgain(at time.Time) bool {
	spec, ok := s.spec.(*cron.SpecSchedule)
	if !ok || spec.Hour&everyHour != 0 {
		return false
	}
	const wall = "2006-01-02 15:04"
	for _, back := range []time.Duration{time.Hour, 30 * time.Minute, 2 * time.Hour} {
		if at.Add(-back).Format(wall) == at.Format(wall) {
			return true
		}
	}
	return false
}

var (
	sunday   = regexp.MustCompile(`^7$`)
	toSunday = regexp.MustCompile(`^([0-6])-7(/\d+)?$`)
)

// sundays writes a Sunday that is 7 as 0, which is all that the library takes.
func sundays(field string) string {
	list := strings.Split(field, ",")
	for i, one := range list {
		one = sunday.ReplaceAllString(one, "0")
		if m := toSunday.FindStringSubmatch(one); m != nil {
			days := []string{}
			step := 1
			if m[2] != "" {
				if step = int(m[2][1] - '0'); len(m[2]) > 2 || step < 1 {
					continue // the library refuses it
				}
			}
			for day := int(m[1][0] - '0'); day <= 7; day += step {
				days = append(days, string(rune('0'+day%7)))
			}
			one = strings.Join(days, ",")
		}
		list[i] = one
	}
	return strings.Join(list, ",")
}
