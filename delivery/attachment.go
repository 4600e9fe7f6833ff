package delivery

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Attachment is a file that goes with an e-mail. Nothing is ever fetched: its bytes are in
// Content, or in the database, where [PutContent] has put them.
type Attachment struct {
	// Name is the file's: up to 150 characters, without a path. Required.
	Name string `json:"name"`
	// Type is its media type, such as application/pdf. Default: that of SHA256's content, or
	// application/octet-stream.
	Type string `json:"type,omitempty"`
	// Content is the file; SHA256 names it instead, as [PutContent] returned it. One of
	// them is required.
	Content []byte `json:"content,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	// Inline says that it is shown where the HTML names it, as cid: and its ContentID,
	// which is of A-Z a-z 0-9 . _ - @ and has up to 78 characters.
	Inline    bool   `json:"inline,omitempty"`
	ContentID string `json:"content_id,omitempty"`
}

const (
	mostAttached    = 7 << 20 // bytes of all attachments together
	mostAttachments = 20
	mostCC          = 20
	mostReplyTo     = 10
	mostFileName    = 150
	mostFileType    = 200
)

var (
	contentID = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,78}$`)
	isSHA256  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// attachments says what is wrong with them, and gives each a type.
func (e *EmailPayload) attachments() (errs []error) {
	if len(e.Attachments) > mostAttachments {
		return []error{fmt.Errorf("attachments are %d, and %d at the most", len(e.Attachments), mostAttachments)}
	}
	e.Attachments = slices.Clone(e.Attachments)
	ids, size := map[string]bool{}, 0
	for i := range e.Attachments {
		a := &e.Attachments[i]
		if err := a.check(e.HTML != "", ids); err != nil {
			errs = append(errs, fmt.Errorf("attachment %d: %w", i+1, err))
			continue
		}
		ids[a.ContentID] = a.Inline
		if a.Type == "" && a.SHA256 == "" {
			a.Type = "application/octet-stream"
		}
		size += len(a.Content)
	}
	if size > mostAttached {
		errs = append(errs, fmt.Errorf("attachments of %d bytes together are over the limit of %d (7 MiB)", size, mostAttached))
	}
	return errs
}

func (a *Attachment) check(html bool, ids map[string]bool) error {
	var errs []error
	if problem := fileNameProblem(a.Name); problem != "" {
		errs = append(errs, errors.New("name "+problem))
	}
	if a.Type != "" && !isFileType(a.Type) {
		errs = append(errs, errors.New("type is no media type of a file, such as application/pdf"))
	}
	switch {
	case a.SHA256 != "" && a.Content != nil:
		errs = append(errs, errors.New("content and sha256 are given, and either would do"))
	case a.SHA256 != "" && !isSHA256.MatchString(a.SHA256):
		errs = append(errs, errors.New("sha256 is not 64 characters of 0-9 a-f"))
	case a.SHA256 == "" && len(a.Content) == 0:
		errs = append(errs, errors.New("content is missing"))
	}
	switch {
	case !a.Inline && a.ContentID != "":
		errs = append(errs, errors.New("content_id is for what is inline"))
	case a.Inline && !contentID.MatchString(a.ContentID):
		errs = append(errs, errors.New("content_id is not 1 to 78 characters of A-Z a-z 0-9 . _ - @"))
	case a.Inline && ids[a.ContentID]:
		errs = append(errs, errors.New("content_id is another one's, too"))
	case a.Inline && !html:
		errs = append(errs, errors.New("inline is for e-mails with html"))
	}
	return errors.Join(errs...)
}

// fileNameProblem says why something is no name of a file; "" if it is one. Marks that turn
// the direction of writing make fdp.exe of exe.pdf.
func fileNameProblem(name string) string {
	switch {
	case name == "" || strings.TrimSpace(name) != name:
		return "is empty, or has white space at an end"
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case utf8.RuneCountInString(name) > mostFileName:
		return fmt.Sprintf("has over %d characters", mostFileName)
	case strings.ContainsAny(name, `/\`) || name == "." || name == "..":
		return "has a path"
	case strings.ContainsFunc(name, func(r rune) bool {
		return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
	}):
		return "has control characters"
	}
	return ""
}

// isFileType reports whether a text is a media type that a file may have. Other mails, and
// what has parts, may not be encoded as files are (RFC 2046, section 5).
func isFileType(text string) bool {
	if len(text) > mostFileType || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return false
	}
	media, params, err := mime.ParseMediaType(text)
	kind, sub, ok := strings.Cut(media, "/")
	_, named := params["name"] // which is made of the file's
	return err == nil && ok && kind != "" && sub != "" && kind != "multipart" && kind != "message" && !named
}

// copies are the addresses of cc, and says what is wrong with them: they are people as the
// recipient is, and looked for among the suppressed as that one is.
func (e *EmailPayload) copies(recipient string) (errs []error) {
	if len(e.CC) > mostCC {
		return []error{fmt.Errorf("cc are %d, and %d at the most", len(e.CC), mostCC)}
	}
	seen := map[string]bool{strings.ToLower(recipient): true}
	for i, text := range e.CC {
		a, err := mail.ParseAddress(text)
		switch {
		case err != nil || strings.ContainsAny(a.Address, "\r\n"):
			errs = append(errs, fmt.Errorf("cc %d is not an address", i+1))
		case a.Address != text:
			errs = append(errs, fmt.Errorf("cc %d is more than an address: leave out names, quotes and comments", i+1))
		case seen[strings.ToLower(text)]:
			errs = append(errs, fmt.Errorf("cc %d is written to already", i+1))
		}
		seen[strings.ToLower(text)] = true
	}
	return errs
}

// ReplyToList returns the addresses of ReplyTo, which [ReadEmail] has read.
func (e EmailPayload) ReplyToList() []*mail.Address {
	if e.ReplyTo == "" {
		return nil
	}
	list, _ := mail.ParseAddressList(e.ReplyTo) // it can be read: else ReadEmail refused it
	return list
}

// checkContent says what is wrong with the copies and the attachments of a payload over
// [Email], whoever makes the request of it; and nothing of the rest.
func checkContent(d *Delivery) error {
	if d.Channel != Email || !bytes.Contains(d.Payload, []byte(`"cc"`)) && !bytes.Contains(d.Payload, []byte(`"attachments"`)) {
		return nil
	}
	var e struct {
		CC          []string        `json:"cc"`
		HTML        json.RawMessage `json:"html"`
		Attachments []Attachment    `json:"attachments"`
	}
	if err := json.Unmarshal(d.Payload, &e); err != nil {
		return payloadError(err)
	}
	p := EmailPayload{CC: e.CC, HTML: string(e.HTML), Attachments: e.Attachments}
	return errors.Join(append(p.copies(strings.TrimSpace(d.Recipient)), p.attachments()...)...)
}

// payloadError is an error of encoding/json, which of base64 does not say what it is of.
func payloadError(err error) error {
	if _, ok := errors.AsType[base64.CorruptInputError](err); ok {
		return fmt.Errorf("payload of an e-mail: content of an attachment is not base64: %w", err)
	}
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && typed.Field != "" {
		return fmt.Errorf("payload of an e-mail: %s cannot be of the type %s", typed.Field, typed.Value)
	}
	return fmt.Errorf("payload of an e-mail: %w", err)
}
