package catcher

import (
	"encoding/base64"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"strings"
)

const (
	mostText  = 100 << 10 // bytes that are read of a mail's text
	mostParts = 10        // within one another
)

// header is that of a mail, or of a part of one.
type header interface{ Get(name string) string }

// textOf is what the recipient of a mail reads of it: its plain text, or else
// the first of its texts. What cannot be decoded is shown as it came.
func textOf(h header, body io.Reader) string {
	text, _ := readText(h, body, 0)
	return strings.ToValidUTF8(text, "\ufffd")
}

func readText(h header, body io.Reader, depth int) (text string, plain bool) {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err == nil && strings.HasPrefix(kind, "multipart/") && depth < mostParts {
		parts := multipart.NewReader(body, params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if err != nil {
				return text, false
			}
			if t, plain := readText(part.Header, part, depth+1); plain || text == "" {
				text = t
				if plain {
					return text, true
				}
			}
		}
	}
	raw, _ := io.ReadAll(io.LimitReader(body, mostText))
	decoded, err := io.ReadAll(decode(h, string(raw)))
	if err != nil {
		decoded = raw
	}
	return string(decoded), err == nil && (kind == "" || kind == "text/plain")
}

func decode(h header, raw string) io.Reader {
	switch strings.ToLower(strings.TrimSpace(h.Get("Content-Transfer-Encoding"))) {
	case "quoted-printable":
		return quotedprintable.NewReader(strings.NewReader(raw))
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, strings.NewReader(raw))
	}
	return strings.NewReader(raw)
}
