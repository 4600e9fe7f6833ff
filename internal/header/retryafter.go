package header

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfter reads a Retry-After header: seconds, or a date that is measured
// against the answer's own clock where it tells it.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	const least, most = time.Second, 24 * time.Hour
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(most/time.Second) {
			return most, true
		}
		return max(time.Duration(seconds)*time.Second, least), true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), least), most), true
}
