package catcher

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
)

// Attachment is what a mail had with it.
type Attachment struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Size int    `json:"size"` // bytes
}

// sentFile is an attachment as services are sent it: Postmark, Resend, SendGrid and SES, whose
// names of fields differ.
type sentFile struct {
	Name, FileName, ContentType, Type string
	Snake                             string `json:"content_type"`
	Content, RawContent               []byte
}

// attachmentsOf finds what a mail, or a request that is one, had with it.
func attachmentsOf(raw []byte) (list []Attachment) {
	if len(raw) > 0 && raw[0] == '{' {
		var flat struct{ Attachments []sentFile }
		var nested struct {
			Content struct {
				Simple struct{ Attachments []sentFile }
			}
		}
		_, _ = json.Unmarshal(raw, &flat), json.Unmarshal(raw, &nested) // each service has one of them
		for _, f := range append(flat.Attachments, nested.Content.Simple.Attachments...) {
			list = append(list, Attachment{cmp.Or(f.Name, f.FileName), cmp.Or(f.ContentType, f.Snake, f.Type), len(f.Content) + len(f.RawContent)})
		}
		return list
	}
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	return attachedTo(m.Header, m.Body, 0)
}

func attachedTo(h header, body io.Reader, depth int) (list []Attachment) {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err == nil && strings.HasPrefix(kind, "multipart/") && depth < mostParts {
		parts := multipart.NewReader(body, params["boundary"])
		for {
			part, err := parts.NextRawPart()
			if err != nil {
				return list
			}
			list = append(list, attachedTo(part.Header, part, depth+1)...)
		}
	}
	as, names, _ := mime.ParseMediaType(h.Get("Content-Disposition"))
	name := cmp.Or(names["filename"], params["name"])
	if as != "attachment" && name == "" {
		return nil
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	size, err := io.Copy(io.Discard, decode(h, string(raw)))
	if err != nil {
		size = int64(len(raw))
	}
	if decoded, err := new(mime.WordDecoder).DecodeHeader(name); err == nil {
		name = decoded
	}
	return []Attachment{{name, kind, int(size)}}
}
