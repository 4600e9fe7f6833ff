package ses

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/mail"
	"slices"
	"strings"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/plaintext"
)

// email is the body of POST /v2/email/outbound-emails.
type email struct {
	From             string               `json:"FromEmailAddress"`
	Destination      destination          `json:"Destination"`
	ReplyTo          []string             `json:"ReplyToAddresses,omitempty"`
	Content          content              `json:"Content"`
	Tags             []adapter.NamedValue `json:"EmailTags"`
	ConfigurationSet string               `json:"ConfigurationSetName,omitempty"`
}

type destination struct {
	To []string `json:"ToAddresses"`
	CC []string `json:"CcAddresses,omitempty"`
}

type content struct {
	Simple simple `json:"Simple"`
}

type simple struct {
	Subject *part                `json:"Subject"`
	Body    parts                `json:"Body"`
	Headers []adapter.NamedValue `json:"Headers,omitempty"`
	Files   []file               `json:"Attachments,omitempty"`
}

type file struct {
	Name        string `json:"FileName"`
	Content     []byte `json:"RawContent"`
	Type        string `json:"ContentType"`
	Disposition string `json:"ContentDisposition"`
	ContentID   string `json:"ContentId,omitempty"`
	Encoding    string `json:"ContentTransferEncoding"`
}

type parts struct {
	Text *part `json:"Text,omitempty"`
	HTML *part `json:"Html,omitempty"`
}

type part struct {
	Data    string `json:"Data"`
	Charset string `json:"Charset"`
}

// utf8 is a part that has a text, nil for none.
func utf8(text string) *part {
	if text == "" {
		return nil
	}
	return &part{text, "UTF-8"}
}

const (
	mostName  = 126 // characters of a header's name
	mostValue = 870 // and of its value
)

// Render makes the body of POST /v2/email/outbound-emails. The tag deed_id is in every
// later event about the e-mail.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	e, err := delivery.ReadEmail(d, p.rules)
	if err != nil {
		return nil, err
	}
	out := email{
		Destination: destination{[]string{d.Recipient}, e.CC}, Tags: []adapter.NamedValue{{Name: "deed_id", Value: d.ID}}, ConfigurationSet: p.opts.ConfigurationSet,
		Content: content{simple{Subject: utf8(e.Subject), Body: parts{utf8(cmp.Or(e.Text, plaintext.Of(e.HTML))), utf8(e.HTML)}}},
	}
	var errs []error
	if !isASCII(d.Recipient) {
		errs = append(errs, errors.New("recipient has more than ASCII, which SES does not take; write the domain as xn--…"))
	}
	if out.From, err = mailbox(e.From); err != nil {
		errs = append(errs, fmt.Errorf("from %w", err))
	}
	for i, to := range e.CC {
		if !isASCII(to) {
			errs = append(errs, fmt.Errorf("cc %d has more than ASCII, which SES does not take; write the domain as xn--…", i+1))
		}
	}
	if e.ReplyTo != "" {
		for _, text := range replies(e) {
			reply, err := mailbox(text)
			if err != nil {
				errs = append(errs, fmt.Errorf("reply_to %w", err))
			}
			out.ReplyTo = append(out.ReplyTo, reply)
		}
	}
	for _, a := range e.Attachments {
		f := file{Name: a.Name, Content: a.Content, Type: a.Type, Disposition: "ATTACHMENT", ContentID: a.ContentID, Encoding: "BASE64"}
		if a.Inline {
			f.Disposition = "INLINE"
		}
		out.Content.Simple.Files = append(out.Content.Simple.Files, f)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		value := e.Headers[name]
		if len(name) > mostName || value == "" || len(value) > mostValue || !isASCII(value) {
			errs = append(errs, fmt.Errorf("header %.140q is not what SES takes: a name of up to %d characters, and a value of 1 to %d of ASCII", name, mostName, mostValue))
		}
		out.Content.Simple.Headers = append(out.Content.Simple.Headers, adapter.NamedValue{Name: name, Value: value})
	}
	if d.SandboxFor != "" {
		out.Content.Simple.Headers = append(out.Content.Simple.Headers, adapter.NamedValue{Name: adapter.SandboxHeader, Value: mime.QEncoding.Encode("UTF-8", d.SandboxFor)})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// replies are the addresses of reply_to; a single one as it was written.
func replies(e delivery.EmailPayload) (list []string) {
	all := e.ReplyToList()
	if len(all) == 1 {
		return []string{e.ReplyTo}
	}
	for _, a := range all {
		list = append(list, a.String())
	}
	return list
}

// mailbox writes an address, which ReadEmail has read, as SES takes it: in ASCII, its name
// in encoded words.
func mailbox(text string) (string, error) {
	a, err := mail.ParseAddress(text)
	if err != nil || !isASCII(a.Address) {
		return "", errors.New("has an address of more than ASCII, which SES does not take; write the domain as xn--…")
	}
	if isASCII(text) {
		return text, nil
	}
	return a.String(), nil
}

// isASCII reports whether a text is of printable ASCII alone.
func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
