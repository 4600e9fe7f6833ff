package webhook

import (
	"bytes"
	"cmp"
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
	DataBase64      []byte `json:"data_base64,omitempty"`
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
	asJSON := isJSON(contentType) && json.Valid(m.Payload) && utf8.Valid(m.Payload)
	if !asJSON {
		a.DataBase64 = m.Payload
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	// Strings and bytes always encode.
	_ = encoder.Encode(a)
	if !asJSON {
		return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	}
	// The encoder would compact the payload, so it is put in by hand.
	b.Truncate(b.Len() - len("}\n"))
	b.WriteString(`,"data":`)
	b.Write(m.Payload)
	b.WriteByte('}')
	return b.Bytes()
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	media = strings.TrimSpace(media)
	return media == "application/json" || strings.HasSuffix(media, "+json")
}
