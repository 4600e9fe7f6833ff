package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/deedhq/deed/campaign"
)

// parseAt reads when a run begins: an instant, or a time of each one's own zone.
func parseAt(at string) (begins time.Time, local string, err error) {
	if at == "" {
		return time.Time{}, "", nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if begins, err = time.Parse(layout, at); err == nil {
			return begins, "", nil
		}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if _, err := time.Parse(layout, at); err == nil {
			return time.Time{}, at, nil
		}
	}
	return time.Time{}, "", usagef("--at %q is neither a time such as 2026-03-20T09:00:00Z, nor one of each one's own zone such as 2026-03-20T09:00", at)
}

// overrule has flags say what the file says otherwise.
func overrule(req *campaign.Request, how campaign.Window, local string) error {
	req.IfPassed = cmp.Or(campaign.IfPassed(how.IfPassed), req.IfPassed)
	req.QuietHours, req.Zone, req.Rate = cmp.Or(how.QuietHours, req.QuietHours), cmp.Or(how.Zone, req.Zone), cmp.Or(how.Rate, req.Rate)
	switch {
	case how.IfPassed != "" && local == "":
		return usagef("--if-passed is about who is late for an --at of each one's own zone, such as 2026-03-20T09:00")
	case how.Zone != "" && local == "" && req.QuietHours == "":
		return usagef("--zone is of who has none, and goes with such an --at or with quiet hours")
	}
	return nil
}

// begins says when a run begins, and up to when, where that is by people's own time.
func begins(r campaign.Run) string {
	text := when(r.ScheduledFor)
	if r.LastDue != nil && !r.LastDue.Equal(r.ScheduledFor) {
		text += " to " + when(*r.LastDue)
	}
	if r.LocalTime != "" {
		text += ", at " + r.LocalTime + " of each one's own time"
	}
	return text
}

// pace says how fast a run is to go.
func pace(r campaign.Run) string {
	if r.Ramp != "" {
		return r.Rate + ", by and by"
	}
	return r.Rate
}

// waits says why nothing goes now.
func waits(w campaign.Wait) string {
	if w.Why == "rate" {
		unit, n := "s", w.Rate
		if n < 1 {
			unit, n = "min", n*60
		}
		if n < 1 {
			unit, n = "h", n*60
		}
		return fmt.Sprintf("its rate, %v/%s by now", math.Round(n*100)/100, unit)
	}
	text := w.Why
	if w.Why == "winner" {
		text = "the winner of its test, which a person decides"
		if w.Until != nil {
			text = "the winner of its test,"
		}
	}
	switch {
	case w.LocalTime != "":
		text += fmt.Sprintf(" until %s in %s", w.LocalTime, w.Zone)
		if w.Zones > 0 {
			text += fmt.Sprintf(" and %s", many(w.Zones, "other zone", "others"))
		}
	case w.Until != nil:
		text += " until " + when(*w.Until)
	}
	if w.Deliveries > 0 {
		text += fmt.Sprintf(" for %d", w.Deliveries)
	}
	return text
}

// pausesOn says when a run pauses itself.
func pausesOn(on *campaign.PauseOn) string {
	if on == nil {
		return ""
	}
	var shares []string
	for _, share := range [][2]string{{on.Failed, "failed"}, {on.Complained, "complained"}} {
		if share[0] != "" {
			shares = append(shares, share[0]+" "+share[1])
		}
	}
	return fmt.Sprintf("%s, of %d or more", strings.Join(shares, " or "), cmp.Or(on.From, 200))
}
