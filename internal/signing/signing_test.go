package signing_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/signing"
)

// A receiver reads every secret; whoever signs takes only one that cannot be
// guessed.
func TestCheck_RefusesWhatKeyReads(t *testing.T) {
	t.Parallel()
	standard := func(n int) string {
		return signing.Prefix + base64.StdEncoding.EncodeToString(make([]byte, n))
	}
	for secret, want := range map[string]struct{ read, signs bool }{
		"":                                {},
		"x":                               {read: true},
		strings.Repeat("x", 15):           {read: true},
		strings.Repeat("x", 16):           {read: true, signs: true},
		strings.Repeat("x", 1000):         {read: true, signs: true},
		signing.Prefix:                    {},
		signing.Prefix + "not base64, it": {},
		standard(23):                      {read: true},
		standard(24):                      {read: true, signs: true},
		standard(64):                      {read: true, signs: true},
		standard(65):                      {read: true},
	} {
		if _, err := signing.Key(secret); (err == nil) != want.read {
			t.Errorf("Key(%q): %v", secret, err)
		}
		if err := signing.Check(secret); (err == nil) != want.signs {
			t.Errorf("Check(%q): %v", secret, err)
		}
	}
}
