package admin

import (
	"encoding/json"
	"testing"
	"time"
)

func TestSeconds_AreDecimalsInJSON(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0", 7 * 24 * time.Hour: "604800", 250 * time.Millisecond: "0.25", 12*time.Second + 345678*time.Microsecond: "12.345678",
		100 * 365 * 24 * time.Hour: "3153600000", -time.Second: "-1",
	} {
		got, err := json.Marshal(Seconds(d))
		if err != nil || string(got) != want {
			t.Errorf("%s is %s in JSON, %v, want %s", d, got, err, want)
		}
		var back Seconds
		if err := json.Unmarshal(got, &back); err != nil || back != Seconds(d) {
			t.Errorf("%s is read as %s, %v", got, back, err)
		}
	}
}
