package nats

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/header"
)

// maxSubject keeps the protocol's control line below the server's limit, 4,096
// bytes by default: going over it would end the connection for all messages.
const maxSubject = 2048

var (
	errSubject  = errors.New("subject")
	placeholder = regexp.MustCompile(`\{[^{}]*\}`)
)

// checkSubject checks a subject with placeholders.
func checkSubject(template string) error {
	for _, word := range placeholder.FindAllString(template, -1) {
		if word != "{topic}" && word != "{key}" && word != "{type}" {
			return fmt.Errorf("option Subject: %s is none of {topic}, {key}, {type}", word)
		}
	}
	sample := placeholder.ReplaceAllString(template, "x")
	if strings.ContainsAny(sample, " \t\r\n*>{}\x00") || strings.HasPrefix(sample, ".") || strings.HasSuffix(sample, ".") ||
		strings.Contains(sample, "..") || len(sample) > maxSubject/2 {
		return fmt.Errorf("option Subject %q is not a subject to publish to", template)
	}
	if sample == "$JS" || strings.HasPrefix(sample, "$JS.") || strings.HasPrefix(sample, "$SYS.") {
		return fmt.Errorf("option Subject %q is the server's own", template)
	}
	return nil
}

func (s *Sink) subject(m deed.Message) (string, error) {
	// For each message, hence not the regular expression. What is put in has no
	// braces that could be taken for another placeholder.
	subject := strings.ReplaceAll(s.opts.Subject, "{topic}", tokens(m.Topic))
	if strings.Contains(subject, "{") {
		subject = strings.ReplaceAll(strings.ReplaceAll(subject, "{key}", token(m.Key)), "{type}", token(m.Type))
	}
	if len(subject) > maxSubject {
		return "", fmt.Errorf("%w of %d bytes, more than %d", errSubject, len(subject), maxSubject)
	}
	return subject, nil
}

// tokens writes a topic, whose dots part tokens, none of them empty. Of what a
// topic may have nothing else means anything to NATS.
func tokens(topic string) string {
	var b strings.Builder
	for i := range len(topic) {
		if topic[i] == '.' && (i == 0 || i == len(topic)-1 || topic[i-1] == '.') {
			b.WriteString("%2E")
		} else {
			b.WriteByte(topic[i])
		}
	}
	return b.String()
}

// token writes any text as one token.
func token(text string) string {
	switch text {
	case "":
		return "_"
	case "_":
		return "%5F"
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(text) {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}

// messageID is what the stream drops repeats by. It does so whatever their subjects are: the subject
// is part of it, or what a stream has for one subscription would be a repeat for the next.
func messageID(prefix string, id deed.ID, subject string) string {
	if prefix != "" {
		prefix = header.Encode(prefix, true) + "."
	}
	sum := sha256.Sum256([]byte(subject))
	return prefix + id.String() + "." + hex.EncodeToString(sum[:8])
}

func (s *Sink) message(m deed.Message, prefix string) (*nats.Msg, error) {
	subject, err := s.subject(m)
	if err != nil {
		return nil, err
	}
	h := nats.Header{}
	for name, value := range m.Headers {
		if lower := strings.ToLower(name); !strings.HasPrefix(lower, "nats-") && !strings.HasPrefix(lower, "deed-") {
			h.Set(name, header.Encode(value, false))
		}
	}
	for _, d := range []struct{ name, value string }{
		{"deed-id", m.ID.String()},
		{"deed-topic", m.Topic},
		{"deed-key", m.Key},
		{"deed-type", m.Type},
	} {
		if d.value != "" {
			h.Set(d.name, header.Encode(d.value, true))
		}
	}
	h.Set("content-type", header.Encode(cmp.Or(m.ContentType, "application/json"), false))
	h.Set(jetstream.MsgIDHeader, messageID(prefix, m.ID, subject))
	return &nats.Msg{Subject: subject, Header: h, Data: m.Payload}, nil
}
