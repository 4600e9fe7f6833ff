package delivery

import (
	"strings"
	"testing"
	"time"
)

// No file outlives the deliveries that named it, which are how an erasure finds it.
func TestOptions_FilesGoWithDeliveries(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct{ retention, content, want time.Duration }{
		{0, 0, 30 * day},
		{7 * day, 0, 7 * day},
		{day, 0, 2 * day},
		{90 * day, 0, 30 * day},
		{0, 60 * day, 60 * day},
		{60 * day, 60 * day, 60 * day},
		{day, 2 * day, 2 * day},
		{7 * day, 7*day + time.Hour, 0},
		{day, 3 * day, 0},
	} {
		o, err := Options{Retention: c.retention, ContentRetention: c.content}.withDefaults()
		if c.want == 0 {
			if err == nil || !strings.Contains(err.Error(), "option ContentRetention "+c.content.String()+" is more than the ") {
				t.Errorf("deliveries for %s, files for %s: %v, want it to be refused", c.retention, c.content, err)
			}
		} else if err != nil || o.ContentRetention != c.want {
			t.Errorf("deliveries for %s, files for %s: %s, %v", c.retention, c.content, o.ContentRetention, err)
		}
	}
}
