package webhook

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/deedhq/deed"
)

const cloudEventsType = "application/cloudevents+json; charset=utf-8"

type eventAttributes struct {
	SpecVersion     string `json:"specversion"`
	ID              string `json:"id"`
	Source          string `json:"source"`
	Type            string `json:"type"`
	Time            string `json:"time"`
	Subject         string `json:"subject,omitempty"`
	DataContentType string `json:"datacontenttype"`
	TraceParent     string `json:"traceparent,omitempty"`
	TraceState      string `json:"tracestate,omitempty"`
}

// cloudEvent wraps m in the structured JSON form. The same message gives the
// same bytes at every attempt.
func cloudEvent(m deed.Message, source string) []byte {
	contentType := cmp.Or(m.ContentType, "application/json")
	a := eventAttributes{
		SpecVersion:     "1.0",
		ID:              m.ID.String(),
		Source:          cmp.Or(source, "/deed/"+m.Topic),
		Type:            cmp.Or(m.Type, m.Topic),
		Time:            m.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"),
		Subject:         m.Key,
		DataContentType: contentType,
		TraceParent:     m.Headers["traceparent"],
		TraceState:      m.Headers["tracestate"],
	}
	return withData(a, embeds(contentType, m.Payload), m.Payload)
}

// withData encodes attributes, a struct of texts and numbers, and puts the
// payload in: as it is under data if verbatim, which takes JSON, else as
// data_base64.
func withData(attributes any, verbatim bool, payload []byte) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	// Texts and numbers always encode.
	_ = encoder.Encode(attributes)
	b.Truncate(b.Len() - len("}\n"))
	switch {
	case verbatim:
		// The encoder would compact it, so it is put in by hand.
		b.WriteString(`,"data":`)
		b.Write(payload)
	case len(payload) > 0:
		b.WriteString(`,"data_base64":"`)
		b.WriteString(base64.StdEncoding.EncodeToString(payload))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.Bytes()
}

// embeds reports whether a payload can stand inside JSON.
func embeds(contentType string, payload []byte) bool {
	return isJSON(contentType) && json.Valid(payload) && utf8.Valid(payload)
}

func isJSON(contentType string) bool {
	media := mediaType(contentType)
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

func mediaType(contentType string) string {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	return strings.TrimSpace(media)
}
