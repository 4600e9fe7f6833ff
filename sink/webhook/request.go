package webhook

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/header"
)

// request builds one attempt's request and returns what its answer may repeat,
// its body. Everything
// that net/http would refuse has been taken care of, so a request that fails
// before it has a connection is the endpoint's doing.
func (s *Sink) request(ctx context.Context, m deed.Message) (*http.Request, [][]byte) {
	body, contentType := m.Payload, cmp.Or(m.ContentType, "application/json")
	if s.opts.Body == CloudEvents {
		body, contentType = cloudEvent(m, s.opts.Source), cloudEventsType
	}
	h := http.Header{}
	for name, value := range m.Headers {
		if header.IsToken(name) && !isReserved(strings.ToLower(name)) {
			h.Set(name, header.Encode(value, false))
		}
	}
	for name, values := range s.headers {
		h[name] = values
	}
	h.Set("Content-Type", header.Encode(contentType, false))
	h.Set("User-Agent", userAgent())
	for _, d := range []struct{ name, value string }{
		{"Deed-Topic", m.Topic},
		{"Deed-Key", m.Key},
		{"Deed-Type", m.Type},
		{"Deed-Attempt", strconv.Itoa(m.Attempt)},
	} {
		if d.value != "" {
			h.Set(d.name, header.Encode(d.value, true))
		}
	}
	return s.post(ctx, h, m.ID.String(), body), [][]byte{body}
}

// post signs a request and makes it one that net/http will not repeat.
func (s *Sink) post(ctx context.Context, h http.Header, id string, body []byte) *http.Request {
	// The process's clock, not the database's: the receiver compares it with its
	// own, so it must be the time of this very attempt, and nothing here is
	// decided by it.
	timestamp := strconv.FormatInt(s.now().Unix(), 10)
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, signatureHeader(s.keys, id, timestamp, body))

	r := &http.Request{
		Method: http.MethodPost, URL: s.url, Host: s.url.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(body)),
		Body:          http.NoBody,
		// Without GetBody net/http cannot send the body a second time by itself.
		GetBody: nil,
	}
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	return r.WithContext(ctx)
}
