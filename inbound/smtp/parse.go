package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"

	"golang.org/x/text/encoding/htmlindex"

	"github.com/deedhq/deed/inbound"
)

// Mail is what is kept of a mail beside its text: an event's body, as JSON.
type Mail struct {
	MessageID   string       `json:"message_id,omitempty"`
	InReplyTo   string       `json:"in_reply_to,omitempty"`
	References  string       `json:"references,omitempty"`
	From        string       `json:"from"`
	Name        string       `json:"name,omitempty"`
	To          []string     `json:"to"` // those that it was delivered for, in lower case
	Subject     string       `json:"subject"`
	Date        string       `json:"date,omitempty"`
	Text        string       `json:"text,omitempty"`
	Cut         bool         `json:"cut,omitempty"` // the text was longer
	Attachments []Attachment `json:"attachments,omitempty"`
}

// Attachment is a file that came with a mail; its contents are not kept.
type Attachment struct {
	Name  string `json:"name,omitempty"`
	Type  string `json:"type"`
	Bytes int    `json:"bytes"`
}

const (
	mostText   = 256 << 10 // bytes of a mail's text
	mostHeader = 1000      // bytes of what is kept of a header
	mostParts  = 200
	mostDepth  = 10
)

var errNoMail = errors.New("it is no mail that can be read")

// parsed is a mail, and what says whether it is one of a person's.
type parsed struct {
	mail   Mail
	header textproto.MIMEHeader
	domain string // of who wrote it
}

// single are the headers that a mail has once (RFC 5322), of those that are read.
var single = []string{"Message-Id", "In-Reply-To", "References", "Subject", "Date", "Mime-Version", "Content-Type", "Content-Transfer-Encoding"}

// parse reads a mail. An error means that nobody could be answered.
func parse(raw []byte, to []string) (parsed, error) {
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return parsed{}, errNoMail
	}
	h := textproto.MIMEHeader(m.Header)
	// "From : x" is none of From here, and is what a signature of From is over.
	for name := range h {
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return parsed{}, errors.New("the name of a header has a blank in it, or is no ASCII")
		}
	}
	from, err := (&mail.AddressParser{WordDecoder: words}).ParseList(m.Header.Get("From"))
	if err != nil || len(from) != 1 || len(h.Values("From")) != 1 {
		return parsed{}, errors.New("it has not one author: want one address in From")
	}
	// A signature is over the last one of a name: who puts another above it would choose
	// what is read, and whether it is a repeat.
	for _, name := range single {
		if len(h.Values(name)) > 1 {
			return parsed{}, errors.New("its header " + name + " stands there twice")
		}
	}
	at := strings.LastIndexByte(from[0].Address, '@')
	p := parsed{header: h, domain: strings.ToLower(from[0].Address[at+1:])}
	p.mail = Mail{
		MessageID: short(h.Get("Message-Id")), InReplyTo: short(h.Get("In-Reply-To")), References: short(h.Get("References")), From: from[0].Address, Name: short(from[0].Name),
		To: to, Subject: short(decoded(h.Get("Subject"))), Date: short(h.Get("Date")),
	}
	parts := mostParts
	walk(&p.mail, h, m.Body, mostDepth, &parts)
	return p, nil
}

// event is the mail as a message. Its id is the mail's own, with who wrote it, as nobody can
// take another's, and with those that it was delivered for: a relay may bring a mail for
// each of them by itself.
func (p parsed) event(raw []byte) (inbound.Event, error) {
	body, err := json.Marshal(p.mail)
	if err != nil {
		return inbound.Event{}, err
	}
	id := sha256.New()
	id.Write([]byte(strings.ToLower(p.mail.From) + "\x00" + p.mail.MessageID))
	for _, to := range slices.Compact(slices.Sorted(slices.Values(p.mail.To))) {
		id.Write([]byte("\x00" + to))
	}
	if p.mail.MessageID == "" {
		id.Write([]byte{0})
		id.Write(raw)
	}
	return inbound.Event{
		ID: hex.EncodeToString(id.Sum(nil)), Sender: p.mail.From, Kind: "email", ReplyTo: p.mail.From, Text: p.mail.Text, Body: body,
	}, nil
}

// ignored is why a mail is nobody's message, by our word for it; "": it is one. Answers to
// programs come back, and never end.
func (p parsed) ignored() string {
	h := p.header
	auto := strings.ToLower(strings.TrimSpace(h.Get("Auto-Submitted")))
	precedence := strings.ToLower(strings.TrimSpace(h.Get("Precedence")))
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	switch {
	case auto != "" && auto != "no", h.Get("X-Auto-Response-Suppress") != "" && auto != "no", h.Get("X-Autoreply") != "", h.Get("X-Autorespond") != "":
		return "auto"
	case kind == "multipart/report":
		return "status"
	case h.Get("List-Id") != "", h.Get("List-Unsubscribe") != "", slices.Contains([]string{"bulk", "list", "junk"}, precedence):
		return "list"
	}
	return ""
}

var words = &mime.WordDecoder{CharsetReader: func(charset string, in io.Reader) (io.Reader, error) {
	e, err := htmlindex.Get(charset)
	if err != nil {
		return nil, err
	}
	return e.NewDecoder().Reader(in), nil
}}

func decoded(text string) string {
	if out, err := words.DecodeHeader(text); err == nil {
		return out
	}
	return text
}

// short is a header's text as it is kept.
func short(text string) string {
	text = clean(text)
	if len(text) > mostHeader {
		text = strings.ToValidUTF8(text[:mostHeader], "")
	}
	return text
}

func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// walk reads a part: the first plain text is the mail's, and what is a file is named.
func walk(m *Mail, h textproto.MIMEHeader, body io.Reader, depth int, parts *int) {
	if *parts--; *parts < 0 || depth == 0 {
		return
	}
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		kind, params = "text/plain", nil
	}
	if strings.HasPrefix(kind, "multipart/") {
		r := multipart.NewReader(body, params["boundary"])
		for {
			part, err := r.NextRawPart()
			if err != nil {
				return
			}
			walk(m, part.Header, part, depth-1, parts)
		}
	}
	disposition, named, _ := mime.ParseMediaType(h.Get("Content-Disposition"))
	name := short(decoded(named["filename"]))
	if name == "" {
		name = short(decoded(params["name"]))
	}
	body = transferred(h.Get("Content-Transfer-Encoding"), body)
	if kind == "text/plain" && disposition != "attachment" && m.Text == "" {
		text, _ := io.ReadAll(io.LimitReader(body, mostText+1))
		m.Text, m.Cut = inUTF8(text, params["charset"])
		return
	}
	if strings.HasPrefix(kind, "text/") && disposition != "attachment" && name == "" {
		return // the same in HTML
	}
	n, _ := io.Copy(io.Discard, body)
	m.Attachments = append(m.Attachments, Attachment{Name: name, Type: short(kind), Bytes: int(n)})
}

// inUTF8 is a text in UTF-8, cut to what is kept.
func inUTF8(text []byte, charset string) (out string, cut bool) {
	if e, err := htmlindex.Get(charset); err == nil {
		if d, err := e.NewDecoder().Bytes(text); err == nil {
			text = d
		}
	}
	if cut = len(text) > mostText; cut {
		text = text[:mostText]
	}
	return strings.TrimRight(clean(string(text)), "\r\n"), cut
}

func transferred(encoding string, body io.Reader) io.Reader {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "quoted-printable":
		return quotedprintable.NewReader(body)
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, body) // which passes over line ends
	}
	return body
}
