// Package errortext makes what is stored of an error: the text that stands
// beside a message or a delivery, where its tenant can read it.
package errortext

import (
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"
)

// word finds what an address would be, with a port or without, and more.
var word = regexp.MustCompile(`\[[0-9A-Za-z:.%]+\](:\d+)?|[0-9A-Za-z.:%]*[0-9A-Za-z%]`)

// Stored returns at most about limit bytes of text, as PostgreSQL takes it, and
// without network addresses: which resolver and which inner hosts there are is
// for the log. Names stay, and so does known, an address that the tenant has
// given itself, or "".
func Stored(text string, limit int, known string) string {
	own, _ := netip.ParseAddr(strings.Trim(known, "[]"))
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	text = word.ReplaceAllStringFunc(text, func(found string) string { return hide(found, own) })
	if len(text) <= limit {
		return text
	}
	text = text[:limit]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "\u2026"
}

var hexadecimal = regexp.MustCompile(`^[0-9A-Fa-f]{1,4}$`)

// mostParts is how many parts between colons an address has.
const mostParts = 9

// hide is a word without its addresses but own: it may be one, or have others around
// it, such as tcp:10.1.2.3:443.
func hide(found string, own netip.Addr) string {
	if addr, ok := addressOf(found); ok {
		return shown(found, addr, own)
	}
	if strings.HasPrefix(found, "[") {
		return found
	}
	parts := strings.Split(found, ":")
	var kept []string
	digits := false // the part before may be one of a fingerprint
	for len(parts) > 0 {
		n, part := 1, parts[0]
		for most := min(len(parts), mostParts); most > 0; most-- {
			text := strings.Join(parts[:most], ":")
			long := !strings.Contains(text, ".") && !strings.Contains(text, "::") && (digits || len(parts) > most+1)
			if addr, ok := addressOf(text); ok && !long {
				n, part = most, shown(text, addr, own)
				break
			}
		}
		kept, parts, digits = append(kept, part), parts[n:], hexadecimal.MatchString(part)
	}
	return strings.Join(kept, ":")
}

// addressOf reads an address, with a port or without.
func addressOf(text string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return addr, true
	}
	pair, err := netip.ParseAddrPort(text)
	return pair.Addr(), err == nil
}

func shown(text string, addr, own netip.Addr) string {
	if own.IsValid() && addr == own {
		return text
	}
	return "(address)"
}

// Clip bounds what a user's mistake may put into an error or a log line.
func Clip(text string) string {
	if len(text) <= 60 {
		return text
	}
	return strings.ToValidUTF8(text[:60], "") + "…"
}
