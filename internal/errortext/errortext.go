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
	address := func(found string, addr netip.Addr) string {
		if own.IsValid() && addr == own {
			return found
		}
		return "(address)"
	}
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	text = word.ReplaceAllStringFunc(text, func(found string) string {
		if addr, err := netip.ParseAddr(strings.Trim(found, "[]")); err == nil {
			return address(found, addr)
		}
		if ap, err := netip.ParseAddrPort(found); err == nil {
			return address(found, ap.Addr())
		}
		return found
	})
	if len(text) <= limit {
		return text
	}
	text = text[:limit]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + "\u2026"
}

// Clip bounds what a user's mistake may put into an error or a log line.
func Clip(text string) string {
	if len(text) <= 60 {
		return text
	}
	return strings.ToValidUTF8(text[:60], "") + "…"
}
