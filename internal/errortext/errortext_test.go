package errortext_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/errortext"
)

func TestStored(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"dial tcp 10.1.2.3:443: connect: connection refused":               "dial tcp (address): connect: connection refused",
		"lookup shop.example on 127.0.0.53:53: no such host":               "lookup shop.example on (address): no such host",
		"dial tcp [fd00::1%eth0]:9092: i/o timeout":                        "dial tcp (address): i/o timeout",
		"read tcp 192.168.0.7:40312->10.0.0.1:25: connection reset":        "read tcp (address)->(address): connection reset",
		"write to ::1 and 2001:db8::7 and ::ffff:10.0.0.1":                 "write to (address) and (address) and (address)",
		"smtp mail.example:25: 550 5.1.1 unknown":                          "smtp mail.example:25: 550 5.1.1 unknown",
		"via tcp:10.0.0.5:80, udp:10.0.0.6 and tcp:::1":                    "via tcp:(address), udp:(address) and tcp:(address)",
		"db:x:10.0.0.5:5432:refused, 10.0.0.7:http: no":                    "db:x:(address):refused, (address):http: no",
		"tcp:[fd00::1]:80: no; tcp:2001:db8:0:0:0:0:0:7, a:b:c::d:e:z":     "tcp:(address): no; tcp:(address), (address):z",
		"SHA1:4A:2B:01:02:03:04:05:06:07:08:09:10:11:12:13:14:15:16:AB:CD": "SHA1:4A:2B:01:02:03:04:05:06:07:08:09:10:11:12:13:14:15:16:AB:CD",
		"at 12:30:45 version 1.2.3.4.5 said 300.1.1.1, x::y, std::move":    "at 12:30:45 version 1.2.3.4.5 said 300.1.1.1, x::y, std::move",
		"bad \xff and\x00zero":                                             "bad \uFFFD andzero",
	} {
		if got := errortext.Stored(text, 1000, ""); got != want {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
	text, want := "dial tcp [fd00::1]:443 and 10.1.2.3: fd00:0::1 is refused", "dial tcp [fd00::1]:443 and (address): fd00:0::1 is refused"
	if got := errortext.Stored(text, 1000, "[fd00::1]"); got != want {
		t.Errorf("a known address: %q", got)
	}
	if got := errortext.Stored(strings.Repeat("\u00e9", 100), 11, ""); got != strings.Repeat("\u00e9", 5)+"\u2026" {
		t.Errorf("clipped: %q", got)
	}
}
