package smtp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/mail"
	"net/textproto"
	"regexp"
	"strings"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/plaintext"
)

// envelope is the first line of a request; the message follows.
type envelope struct {
	From      string   `json:"mail_from"`
	To        string   `json:"rcpt_to"`
	CC        []string `json:"cc,omitempty"`
	MessageID string   `json:"message_id,omitempty"` // if From is not the header's
}

// Render makes the envelope and the message. Its Message-ID is of the
// delivery's key, so that a bounce that quotes it tells which one it was.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	e, err := delivery.ReadEmail(d, p.rules)
	if err != nil {
		return nil, err
	}
	from, err := mail.ParseAddress(e.From)
	if err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	to, err := mail.ParseAddress(d.Recipient)
	if err != nil {
		return nil, fmt.Errorf("recipient: %w", err)
	}
	sent := envelope{From: from.Address, To: to.Address, CC: e.CC}
	if p.back != nil {
		sent.From, sent.MessageID = p.back.address(d.ID), messageID(d.Key, from.Address)
	}
	first, err := json.Marshal(sent)
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	request := bytes.NewBuffer(append(first, '\n'))
	m := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	m.SetAddrHeaderFromMailAddress(gomail.HeaderFrom, from)
	m.SetAddrHeaderFromMailAddress(gomail.HeaderTo, to)
	if len(e.CC) > 0 {
		if err := m.Cc(e.CC...); err != nil {
			return nil, fmt.Errorf("cc: %w", err)
		}
	}
	if list := e.ReplyToList(); len(list) > 0 {
		m.SetAddrHeaderFromMailAddress(gomail.HeaderReplyTo, list...)
	}
	m.SetGenHeader(gomail.HeaderSubject, e.Subject)
	m.SetMessageIDWithValue(messageID(d.Key, from.Address))
	m.SetDateWithValue(d.At)
	m.SetGenHeader("X-Deed-ID", d.ID)
	if d.SandboxFor != "" {
		m.SetGenHeader("X-Deed-Sandbox-For", d.SandboxFor)
	}
	for name, value := range e.Headers {
		m.SetGenHeader(gomail.Header(name), value)
	}
	if err := body(m, e, d.Key); err != nil {
		return nil, err
	}
	if _, err := m.WriteTo(request); err != nil {
		return nil, fmt.Errorf("make message: %w", err)
	}
	if !bytes.HasSuffix(request.Bytes(), []byte("\r\n")) {
		request.WriteString("\r\n") // which the end of a message in SMTP would add
	}
	return request.Bytes(), nil
}

// body puts the texts and the files into a message: files that are shown inline beside the
// HTML, the others behind all of it.
func body(m *gomail.Msg, e delivery.EmailPayload, boundary string) error {
	switch text := cmp.Or(e.Text, plaintext.Of(e.HTML)); {
	case e.HTML == "":
		m.SetBodyString(gomail.TypeTextPlain, text)
	case text == "":
		m.SetBodyString(gomail.TypeTextHTML, e.HTML)
	default:
		m.SetBodyString(gomail.TypeTextPlain, text)
		m.AddAlternativeString(gomail.TypeTextHTML, e.HTML)
	}
	if len(e.Attachments) == 0 {
		m.SetBoundary(boundary) // with files there may be several, each within another
	}
	for _, a := range e.Attachments {
		add, disposition := m.AttachReader, "attachment"
		if a.Inline {
			add, disposition = m.EmbedReader, "inline"
		}
		headers := func(f *gomail.File) {
			f.Header.Set("Content-Type", a.Type)
			f.Header.Set("Content-Disposition", disposition+fileName(a.Name))
			if a.Inline {
				f.Header.Set("Content-ID", "<"+a.ContentID+">")
			}
		}
		if err := add(a.Name, bytes.NewReader(a.Content), headers); err != nil {
			return fmt.Errorf("attachment: %w", err)
		}
	}
	return nil
}

// fileName is the parameter filename of a header: as it stands where it is short and of ASCII,
// else in pieces of UTF-8 that fit into lines (RFC 2231).
func fileName(name string) string {
	const mostPlain, mostPiece = 60, 50
	if len(name) <= mostPlain && !strings.ContainsFunc(name, func(r rune) bool { return r > '~' }) {
		return ";\r\n filename=" + mime.FormatMediaType("x/x", map[string]string{"x": name})[len("x/x; x="):]
	}
	var b strings.Builder
	for piece := 0; name != ""; piece++ {
		fmt.Fprintf(&b, ";\r\n filename*%d*=", piece)
		if piece == 0 {
			b.WriteString("utf-8''")
		}
		for written := 0; name != "" && written < mostPiece; {
			_, n := utf8.DecodeRuneInString(name) // a character is not cut in two
			for _, c := range []byte(name[:n]) {
				if c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c == '.' || c == '-' || c == '_' {
					b.WriteByte(c)
					written++
					continue
				}
				fmt.Fprintf(&b, "%%%02X", c)
				written += 3
			}
			name = name[n:]
		}
	}
	return b.String()
}

func messageID(key, from string) string { return key + "@" + from[strings.LastIndex(from, "@")+1:] }

// withoutCopies is what a server answered, without whom it names of those who get a copy.
func (e envelope) withoutCopies(err error) error {
	answer, ok := errors.AsType[*textproto.Error](err)
	if !ok || len(e.CC) == 0 {
		return err
	}
	text := answer.Msg
	for _, to := range e.CC {
		text = regexp.MustCompile("(?i)"+regexp.QuoteMeta(to)).ReplaceAllLiteralString(text, "(copy)")
	}
	return &textproto.Error{Code: answer.Code, Msg: text}
}
