package liquid

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // a machine without zones, as an image from scratch is, would fail every text that has one
)

// zones are the time zones of a rendering, by name: reading one is reading a file.
type zones map[string]*time.Location

var zoneName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$`)

func (z zones) load(name string) (*time.Location, error) {
	if at, ok := z[name]; ok {
		return at, nil
	}
	// Local is wherever the program runs.
	if len(name) > 64 || name == "Local" || !zoneName.MatchString(name) {
		return nil, errors.New("unknown time zone: give one as Europe/Berlin")
	}
	at, err := time.LoadLocation(name)
	if err != nil {
		return nil, errors.New("unknown time zone: give one as Europe/Berlin")
	}
	z[name] = at
	return at, nil
}

// date writes a date or an instant by a format of strftime, in a zone or as it was given.
func date(s *state, v any, args []any) (any, error) {
	if err := s.charge(20); err != nil {
		return nil, err
	}
	if v == nil || v == "" {
		return nil, nil
	}
	at, err := toTime(v)
	if err != nil {
		return nil, err
	}
	if len(args) > 1 {
		name, err := toText(args[1])
		if err != nil {
			return nil, err
		}
		if _, ok := s.zones[name]; !ok {
			if err := s.charge(1000); err != nil {
				return nil, err
			}
		}
		zone, err := s.zones.load(name)
		if err != nil {
			return nil, err
		}
		at = at.In(zone)
	}
	format, err := toText(args[0])
	if err != nil {
		return nil, err
	}
	if err := s.chargeText(4 * len(format)); err != nil {
		return nil, err
	}
	text, err := strftime(format, at)
	if err != nil {
		return nil, err
	}
	return s.text(text)
}

// toTime reads what PostgreSQL and RFC 3339 write, and seconds since 1970. What has no
// zone is UTC. There is no now: a text must be the same each time it is rendered.
func toTime(v any) (time.Time, error) {
	switch v := v.(type) {
	case int:
		return checkedYear(time.Unix(int64(v), 0).UTC())
	case string:
		if v == "now" || v == "today" {
			return time.Time{}, fmt.Errorf("%s is another time at each rendering: give the time among the data", v)
		}
		if len(v) > 64 {
			break
		}
		for _, layout := range []string{
			time.RFC3339Nano, time.DateOnly, time.DateTime,
			"2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05Z07", "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04",
		} {
			if at, err := time.Parse(layout, strings.TrimSpace(v)); err == nil {
				// time.Parse takes this machine's zone, if the offset is the same.
				name, offset := "", 0
				if _, offset = at.Zone(); offset == 0 {
					name = "UTC"
				}
				return checkedYear(at.In(time.FixedZone(name, offset)))
			}
		}
	}
	return time.Time{}, errors.New("a date is needed, as 2026-03-01 or 2026-03-01T09:30:00Z")
}

func checkedYear(at time.Time) (time.Time, error) {
	if year := at.UTC().Year(); year < 1 || year > 9998 {
		return time.Time{}, errors.New("a date has a year from 1 to 9998")
	}
	return at, nil
}

// strftime writes a time by the directives that docs/templates.md has.
func strftime(format string, at time.Time) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(format, "%")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		bare := strings.HasPrefix(rest, "-")
		rest = strings.TrimPrefix(rest, "-")
		if rest == "" {
			return "", errors.New("the format ends after %: write %% for a percent sign")
		}
		text, ok := directive(rest[0], at)
		if !ok {
			return "", fmt.Errorf("the format has no %%%c", []rune(rest)[0])
		}
		if bare {
			if trimmed := strings.TrimLeft(text, "0 "); trimmed != "" {
				text = trimmed
			} else {
				text = "0"
			}
		}
		b.WriteString(text)
		format = rest[1:]
	}
}

func directive(c byte, at time.Time) (string, bool) {
	layouts := map[byte]string{
		'Y': "2006", 'y': "06", 'm': "01", 'B': "January", 'b': "Jan", 'h': "Jan", 'd': "02", 'e': "_2", 'j': "002",
		'A': "Monday", 'a': "Mon", 'H': "15", 'I': "03", 'l': "3", 'M': "04", 'S': "05", 'p': "PM", 'P': "pm",
		'z': "-0700", 'F': time.DateOnly, 'T': time.TimeOnly, 'R': "15:04", 'D': "01/02/06",
	}
	switch c {
	case '%':
		return "%", true
	case 'Z':
		name, _ := at.Zone()
		if name == "" {
			name = at.Format("-07:00")
		}
		return name, true
	case 's':
		return fmt.Sprint(at.Unix()), true
	case 'u':
		return fmt.Sprint((int(at.Weekday())+6)%7 + 1), true
	case 'w':
		return fmt.Sprint(int(at.Weekday())), true
	case 'V':
		_, week := at.ISOWeek()
		return fmt.Sprintf("%02d", week), true
	case 'G':
		year, _ := at.ISOWeek()
		return fmt.Sprint(year), true
	}
	layout, ok := layouts[c]
	return at.Format(layout), ok
}
