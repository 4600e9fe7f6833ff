package graphemes

import (
	"strings"
	"testing"
)

// What people see as one character is never counted as more, and what is plain is counted.
func TestLeast(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "hello": 5, "Grüße": 5, "Gru\u0308ße": 5, "中文字": 3, "a\r\nb": 3, "a\n\nb": 4,
		"👩‍👩‍👧": 1, "👍🏽👍": 2, "🇩🇪🇫🇷🇪": 3, "❤️": 1, "1️⃣2": 2, "한국": 2, "\u1112\u1161\u11ab": 1,
		"क्षत्रिय":               3, // क्ष, त्रि, य
		"\u0600\u0661":           1,
		strings.Repeat("x", 301): 301,
	} {
		if got := Least(text); got != want {
			t.Errorf("%q has %d characters at least, want %d", text, got, want)
		}
	}
}
