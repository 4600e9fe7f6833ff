package smtp

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever comes for a mail is read or refused, in bounds, and as text that a database
// takes; and nothing vouches for a domain but the relay's own word.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"From: a@b.c\r\n\r\nhello", "From: a@b.c\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b--",
		"From: =?utf-16?b?AAA=?= <a@b.c>\r\nSubject: =?x?q?=00?=\r\nContent-Type: text/plain; charset=utf-16\r\n\r\n\x00\xff",
		"From: a@b.c\r\nAuthentication-Results: mx (a(b)\"); dmarc=pass header.from=b.c\r\n\r\n", "From: a\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parse(raw, []string{"x@y.z"})
		if err != nil {
			return
		}
		e, err := p.event(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !utf8.ValidString(e.Text) || strings.Contains(e.Text, "\x00") || !json.Valid(e.Body) || len(e.Text) > mostText+3 || len(e.ID) != 64 {
			t.Errorf("%+v", e)
		}
		if values := p.header.Values("Authentication-Results"); isAuthentic(values, []string{"mx.of.nobody"}, p.domain) && !strings.Contains(strings.ToLower(strings.Join(values, " ")), "mx.of.nobody") {
			t.Error("vouched for by another")
		}
	})
}
