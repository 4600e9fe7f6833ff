package smtp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/mail"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/emersion/go-message"

	"github.com/deedhq/deed/delivery"
)

// What servers say of a mail of ours, as RFC 3464 has it, or as they wrote before it.
// Of whom it is said counts only if it is one of the delivery's ([delivery.Bounces]): a mail
// that was passed on may come back for somebody else.

// TakesMail implements [delivery.MailReader].
func (p *Provider) TakesMail(to string) bool { return p.back != nil && p.back.takes(to) }

// ReadMail implements [delivery.MailReader].
func (p *Provider) ReadMail(to string, raw []byte) (delivery.Told, error) {
	if p.back == nil {
		return delivery.Told{}, delivery.ErrNoEvents
	}
	id, ok := p.back.delivery(to)
	if !ok {
		return delivery.Told{}, delivery.ErrUnverified
	}
	m, err := message.Read(bytes.NewReader(raw))
	if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
		return delivery.Told{}, errNoMail
	}
	if m.Header.Len() == 0 {
		return delivery.Told{}, errNoMail
	}
	about := delivery.StatusEvent{Delivery: id, ID: eventID(&m.Header, raw)}
	if at, err := mail.ParseDate(m.Header.Get("Date")); err == nil && at.Year() >= 1970 {
		about.At = at.In(time.UTC)
	}
	r := mailRead{parts: mostParts}
	r.walk(m, mostDepth)
	var events []delivery.StatusEvent
	switch {
	case r.isReport:
		events = reported(r.reports)
	case isBounce(&m.Header):
		events = plain(&m.Header, r.text)
	}
	if len(events) == 0 {
		return delivery.Told{Other: 1}, nil // an answer of a person or a program, a receipt, or a report that says nothing
	}
	for i, e := range events {
		events[i].Delivery, events[i].At = about.Delivery, about.At
		events[i].ID = about.ID + " " + string(e.Said)
		events[i].Reason = clean(e.Reason)
	}
	return delivery.Told{Events: events}, nil
}

var errNoMail = errors.New("it is no e-mail that can be read")

const (
	mostParts = 50
	mostDepth = 4
	mostPart  = 256 << 10 // of the bytes of a part that are read
)

// eventID is what the mail calls itself, or its hash.
func eventID(h *message.Header, raw []byte) string {
	id := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, clean(strings.TrimSpace(h.Get("Message-Id"))))
	if id == "" || len(id) > 200 {
		sum := sha256.Sum256(raw)
		id = hex.EncodeToString(sum[:])
	}
	return id
}

func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// mailRead is what is read of a mail.
type mailRead struct {
	isReport bool // it has a delivery-status, whatever stands in it
	reports  []report
	text     string // the first that is plain
	parts    int
}

func (r *mailRead) walk(m *message.Entity, depth int) {
	if r.parts--; r.parts < 0 || depth == 0 {
		return
	}
	kind, _, err := m.Header.ContentType()
	if err != nil {
		kind = "text/plain"
	}
	if parts := m.MultipartReader(); parts != nil {
		for {
			part, err := parts.NextPart()
			if part == nil || err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
				return
			}
			r.walk(part, depth-1)
		}
	}
	switch kind {
	case "message/delivery-status", "message/global-delivery-status":
		if body, err := io.ReadAll(io.LimitReader(m.Body, mostPart)); err == nil && !r.isReport {
			r.isReport, r.reports = true, reportsOf(string(body))
		}
	case "text/plain":
		if body, err := io.ReadAll(io.LimitReader(m.Body, mostPart)); err == nil && r.text == "" {
			r.text = string(body)
		}
	}
}

// report is what is said of one recipient (RFC 3464, section 2.3).
type report struct{ original, final, action, status, diagnostic string }

// reportsOf reads a delivery-status: groups of fields with an empty line between them,
// of which the first is of the whole mail.
func reportsOf(body string) (list []report) {
	body = strings.ReplaceAll(body, "\r\n", "\n")
	for _, group := range strings.Split(regexpBlank.ReplaceAllString(body, "\n\n"), "\n\n") {
		fields := fieldsOf(group)
		if fields["final-recipient"] == "" && fields["original-recipient"] == "" {
			continue // of the whole mail
		}
		if len(list) == mostParts {
			return list
		}
		list = append(list, report{afterType(fields["original-recipient"]), afterType(fields["final-recipient"]), strings.ToLower(firstWord(fields["action"])), firstWord(fields["status"]), fields["diagnostic-code"]})
	}
	return list
}

var regexpBlank = regexp.MustCompile(`\n[ \t]*\n`)

// fieldsOf reads the fields of a group, the first of each name, unfolded.
func fieldsOf(group string) map[string]string {
	fields, last := map[string]string{}, ""
	for line := range strings.SplitSeq(group, "\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			if last != "" {
				fields[last] += " " + strings.TrimSpace(line)
			}
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if last = strings.ToLower(strings.TrimSpace(name)); !ok || fields[last] != "" {
			last = ""
			continue
		}
		fields[last] = strings.TrimSpace(value)
	}
	return fields
}

// firstWord leaves out a comment behind it.
func firstWord(text string) string {
	if words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' || r == '(' }); len(words) > 0 {
		return words[0]
	}
	return ""
}

// reported is what reports say of a delivery. Where a mail was passed on to several, of
// whom some were reached, nobody knows that its own recipient was not.
func reported(reports []report) (events []delivery.StatusEvent) {
	all := true // have failed for good
	for _, r := range reports {
		e := delivery.StatusEvent{Code: r.status, Reason: afterType(r.diagnostic)}
		switch r.action {
		case "failed":
			e.Code = codeIn(r.status, r.diagnostic)
			e.Said = failed(e.Code)
		case "delayed":
			e.Said = delivery.SaidSoftBounced
		case "delivered":
			e = delivery.StatusEvent{Said: delivery.SaidDelivered}
		case "relayed", "expanded":
			e = delivery.StatusEvent{Said: delivery.SaidAccepted}
		default:
			continue
		}
		if e.Address = strings.Trim(cmp.Or(r.original, r.final), "<>"); !utf8.ValidString(e.Address) || strings.ContainsRune(e.Address, 0) {
			e.Address = ""
		}
		all = all && e.Said == delivery.SaidBounced
		events = append(events, e)
	}
	for i := range events {
		if !all && events[i].Said == delivery.SaidBounced {
			events[i].Said = delivery.SaidSoftBounced
		}
	}
	return events
}

// afterType is what stands behind the type of a diagnostic, such as smtp;.
func afterType(diagnostic string) string {
	if kind, rest, ok := strings.Cut(diagnostic, ";"); ok && kind != "" && !strings.Contains(kind, " ") && (kind[0] < '0' || kind[0] > '9') {
		return strings.TrimSpace(rest)
	}
	return strings.TrimSpace(diagnostic)
}

// enhanced are the codes of RFC 3463.
var enhanced = regexp.MustCompile(`(?:^|[^0-9.])([245])\.([0-9]{1,3})\.([0-9]{1,3})(?:$|[^0-9.]|\.(?:$|[^0-9]))`)

// codeIn is the code of a failure: the status, or where that says nothing more than that
// it has failed (5.0.0), the one of the server's answer.
func codeIn(status, diagnostic string) string {
	is := enhanced.FindStringSubmatch(status)
	if is == nil || is[2] == "0" {
		if said := enhanced.FindStringSubmatch(diagnostic); said != nil {
			is = said
		}
	}
	if is == nil {
		return ""
	}
	return is[1] + "." + is[2] + "." + is[3]
}

// failed is what a failure is: RFC 3463's classes and subjects. A code that is not there,
// or says nothing, is no reason never to write to somebody again.
func failed(code string) delivery.Said {
	parts := strings.Split(code, ".")
	if len(parts) != 3 || parts[0] != "5" {
		return delivery.SaidSoftBounced
	}
	switch {
	case code == "5.1.7", code == "5.1.8", code == "5.3.4": // the sender's address; the mail's size
		return delivery.SaidDropped
	case parts[1] == "1":
		return delivery.SaidBounced
	case parts[1] == "5", parts[1] == "6", parts[1] == "7": // the conversation, the content, a policy: about us
		return delivery.SaidDropped
	}
	return delivery.SaidSoftBounced
}

// isBounce reports whether a mail without a report can be one of a server: no answer of a
// person, nor of a program that answers for one.
func isBounce(h *message.Header) bool {
	if h.Get("X-Failed-Recipients") != "" {
		return true
	}
	from, err := mail.ParseAddress(h.Get("From"))
	if err != nil {
		return false
	}
	local, _, _ := strings.Cut(strings.ToLower(from.Address), "@")
	auto, _, _ := mime.ParseMediaType(cmp.Or(h.Get("Auto-Submitted"), "no"))
	return (local == "mailer-daemon" || local == "postmaster") && auto != "auto-notified"
}

// original is where a bounce repeats what was sent, whose words are not the server's.
var original = regexp.MustCompile(`(?im)^-{2,}.*(original|copy of|returned message|below this line|message follows|headers).*$`)

// answered is what servers answer: a code, and an enhanced one behind it.
var answered = regexp.MustCompile(`(?:^|[^0-9.])([45])[0-9]{2}[ -]#?([45]\.[0-9]{1,3}\.[0-9]{1,3})?[^0-9]`)

// plain is what a bounce in prose says, if it has a server's answer in it.
func plain(h *message.Header, text string) []delivery.StatusEvent {
	if at := original.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	code := codeIn("", text)
	if code == "" {
		if at := answered.FindStringSubmatch(text); at != nil {
			code = at[1] + ".0.0"
		}
	}
	if strings.HasPrefix(code, "2") || code == "" && h.Get("X-Failed-Recipients") == "" {
		return nil
	}
	return []delivery.StatusEvent{{Said: failed(code), Code: code, Reason: lineWith(text, code)}}
}

// lineWith is the line that has a code, or the first one.
func lineWith(text, code string) string {
	first := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if code != "" && strings.Contains(line, code) {
			return line
		}
		first = cmp.Or(first, line)
	}
	return first
}
