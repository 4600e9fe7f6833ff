// Package header says what a header of HTTP or of NATS may be, and writes values
// that it carries unharmed.
package header

import "strings"

// Encode percent-encodes what a header cannot carry unharmed: all that is not
// visible ASCII or a space inside the value. The percent sign is encoded if
// anything else is, or always. url.PathUnescape is the way back.
func Encode(v string, always bool) string {
	plain := true
	for i := range len(v) {
		plain = plain && carried(v, i)
	}
	if plain && (!always || !strings.Contains(v, "%")) {
		return v
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(v) {
		if c := v[i]; carried(v, i) && c != '%' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

func carried(v string, i int) bool {
	c := v[i]
	return ' ' < c && c < 0x7f || c == ' ' && i > 0 && i < len(v)-1
}

// IsToken reports whether a header can have this name.
func IsToken(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return name != ""
}
