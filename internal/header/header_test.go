package header

import (
	"net/url"
	"testing"
)

func FuzzEncode(f *testing.F) {
	f.Add("o-1")
	f.Add(" 100% é\r\nx: y\x00 ")
	f.Fuzz(func(t *testing.T, value string) {
		for _, always := range []bool{true, false} {
			encoded := Encode(value, always)
			for i := range len(encoded) {
				if !carried(encoded, i) {
					t.Fatalf("Encode(%q) = %q, which a header cannot carry", value, encoded)
				}
			}
			if !always && encoded == value {
				continue
			}
			if back, err := url.PathUnescape(encoded); err != nil || back != value {
				t.Fatalf("Encode(%q) = %q, which gives %q back (%v)", value, encoded, back, err)
			}
		}
	})
}
