package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/liquid"
	"github.com/deedhq/deed/internal/document"
)

// MaxBytes is how large a campaign's file may be. Each of its texts may have 256 KiB, as package liquid has it.
const MaxBytes = document.MaxBytes

const mostText = 256 << 10

// File is a campaign as somebody has written it.
type File struct {
	// Name is the file's.
	Name string
	// Campaign is the campaign's name.
	Campaign string
	// Content is what is said, or what its variants have in common.
	Content campaign.Content
	// Variants are the contents among which the members are divided, in the order of their names; each
	// has all that it says.
	Variants []campaign.Content
	// Request is what the file says of a run: all but the ids of campaign, content and
	// audience, the request's own id, and when it begins.
	Request campaign.Request
	// Columns say which of a row is what.
	Columns Columns
	// Segment chooses among the contacts that there are: a jsonpath predicate over their data.
	// "" for none.
	Segment string

	texts []text
}

// Columns are those of an audience's rows.
type Columns struct {
	// Address, Contact and Zone are those of [campaign.Member]. Address is by default email,
	// phone, chat or account, by the channel; of the others there is none.
	Address, Contact, Zone string
	// Data are what templates have as contact. Default: all others.
	Data []string
}

// text is a part of a content, and where it stands.
type text struct {
	part   string
	kind   liquid.Kind
	source string
	file   string
	line   int // in file, of its first line
}

// Read reads the campaign of a file, and its texts, which are beside it. Errors: as [Parse].
func Read(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &deed.Error{Op: "read campaign", Code: deed.Invalid, Err: err}
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("deed: read campaign: %w", err)
	}
	return Parse(path, data, os.DirFS(filepath.Dir(path)))
}

// Parse reads a campaign, in YAML or JSON; name is the file's, and texts has the files that it
// names. The error's code is [deed.Invalid], and it has all that is wrong, each a line such as
//
//	spring.yaml:4: purpos: unknown key (did you mean "purpose"?)
//	spring.txt:2: template_error: undefined name contact.nmae: there is contact.city, contact.name, unsubscribe_url
func Parse(name string, data []byte, texts fs.FS) (*File, error) {
	r := &reader{Reader: &document.Reader{File: name}, dir: texts, file: &File{Name: name}}
	if root := r.Parse(data, "a campaign has campaign, channel and provider", "campaign, channel and provider"); root != nil {
		r.read(&document.Section{Reader: r.Reader, Line: 1, Node: root})
	}
	_, wrong := r.file.bind(r.file.Columns.Data)
	if err := errors.Join(r.Err(), wrong); err != nil {
		return nil, &deed.Error{Op: "read campaign", Code: deed.Invalid, Err: err}
	}
	return r.file, nil
}

// reader reads one campaign.
type reader struct {
	*document.Reader
	dir  fs.FS
	file *File
}

// channels are the keys that a campaign has for what is said over each, and the column in
// which an address is by default.
var channels = map[campaign.Channel]struct {
	keys   []string
	column string
}{
	campaign.Email:  {[]string{"subject", "text", "html", "from", "reply_to", "asset"}, "email"},
	campaign.SMS:    {[]string{"text", "asset"}, "phone"},
	campaign.Voice:  {[]string{"script", "script_version"}, "phone"},
	campaign.Social: {[]string{"text", "post"}, "account"},
	campaign.Chat:   {[]string{"text", "asset"}, "chat"},
}

func (r *reader) read(s *document.Section) {
	f := r.file
	for _, key := range []string{"campaign", "channel"} {
		if !s.Has(key) {
			s.Problemf(1, key, "a campaign has campaign, its name, and channel")
		}
	}
	f.Campaign = r.short(s, "campaign")
	f.Request.Channel = campaign.Channel(s.Choice("channel", string(campaign.Email), string(campaign.SMS), string(campaign.Voice), string(campaign.Social), string(campaign.Chat)))
	f.Request.Provider, f.Request.Purpose = r.short(s, "provider"), r.short(s, "purpose")
	f.Request.Transactional = flag(s, "transactional")
	f.Request.NeedsConsent = s.Choice("consent", "required") != ""
	f.Request.ExpiresAfter = s.Duration("expires_after", time.Minute, 30*24*time.Hour)
	r.window(s)
	r.pauseOn(s)
	if f.Request.Channel == "" {
		return // which keys it may have is not known
	}
	for _, key := range channels[f.Request.Channel].keys {
		r.said(s, key, &f.Content)
	}
	r.variants(s)
	f.Columns.Address = channels[f.Request.Channel].column
	if a := s.Sub("audience"); a != nil {
		r.audience(a)
	}
	s.Done()
}

// short reads a text of 200 characters at the most.
func (r *reader) short(s *document.Section, key string) string {
	if !s.Has(key) {
		return ""
	}
	v := s.Text(key)
	if len([]rune(v)) > 200 {
		s.Keyf(key, "it is over 200 characters")
	}
	return v
}

// address reads an address with or without a name, as a header has it: that it is none would
// else be found when the first mail is to go out.
func address(s *document.Section, key string) string {
	v := s.Text(key)
	if _, err := mail.ParseAddress(v); v != "" && err != nil {
		s.Keyf(key, "want an address, such as Shop <shop@example.com>")
	}
	return v
}

func flag(s *document.Section, key string) bool {
	n := s.Get(key)
	if n == nil {
		return false
	}
	if n.Kind != document.Boolean {
		s.Keyf(key, "want true or false, got %s", n.Kind)
	}
	return n.Text == "true"
}

// said reads a key of what is said.
func (r *reader) said(s *document.Section, key string, c *campaign.Content) {
	if !s.Has(key) {
		return
	}
	switch key {
	case "from":
		r.file.Request.From = address(s, key)
	case "reply_to":
		r.file.Request.ReplyTo = address(s, key)
	case "asset":
		c.Asset = r.short(s, key)
	case "post":
		c.Post = r.short(s, key)
	case "script_version":
		c.ScriptVersion = r.short(s, key)
	case "subject":
		c.Subject = s.Text(key)
		r.file.texts = append(r.file.texts, text{key, liquid.Subject, c.Subject, r.File, s.LineOf(key)})
	case "text":
		c.Text = r.text(s, key, liquid.Text)
	case "script":
		c.Script = r.text(s, key, liquid.Text)
	case "html":
		c.HTML = r.text(s, key, liquid.HTML)
	}
}

// text reads the file that a key names.
func (r *reader) text(s *document.Section, key string, kind liquid.Kind) string {
	name := s.Text(key)
	if name == "" {
		return ""
	}
	in, err := r.dir.Open(name)
	if err != nil {
		why := "there is no such file beside the campaign's"
		if !fs.ValidPath(name) {
			why = "want the name of a file beside the campaign's, or below its directory"
		} else if !errors.Is(err, fs.ErrNotExist) {
			why = err.Error()
		}
		s.Keyf(key, "%q: %s", name, why)
		return ""
	}
	defer func() { _ = in.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(in, mostText+1))
	switch {
	case err != nil:
		s.Keyf(key, "%q: %v", name, err)
	case len(data) > mostText:
		s.Keyf(key, "%q is over 256 KiB", name)
	case strings.TrimSpace(string(data)) == "":
		s.Keyf(key, "%q is empty", name)
	default:
		r.file.texts = append(r.file.texts, text{key, kind, string(data), filepath.Join(filepath.Dir(r.File), name), 1})
		return string(data)
	}
	return ""
}

func (r *reader) audience(s *document.Section) {
	c := &r.file.Columns
	for key, to := range map[string]*string{"address": &c.Address, "contact": &c.Contact, "zone": &c.Zone} {
		if s.Has(key) {
			*to = s.Text(key)
		}
	}
	s.Texts("data", func(v string, line int) {
		switch {
		case slices.Contains(c.Data, v):
			s.Problemf(line, document.Join(s.Path, "data"), "%q is named twice", v)
		case strings.Contains(v, "."):
			s.Problemf(line, document.Join(s.Path, "data"), "%q has a point in it, which templates take for a way into it: give the column another name", v)
		default:
			c.Data = append(c.Data, v)
		}
	})
	if s.Has("segment") {
		r.file.Segment = s.Text("segment")
	}
	s.Done()
}

// bind reads the templates for rows that have these columns; nil: unknown ones. It returns the names that they
// need of everybody.
func (f *File) bind(columns []string) (needs []string, err error) {
	names := campaign.Names()
	if columns != nil {
		names = []string{"unsubscribe_url"}
		for _, c := range columns {
			if !strings.Contains(c, ".") { // which a template takes for a way into it
				names = append(names, "contact."+c)
			}
		}
	}
	var errs []error
	for _, t := range f.texts {
		parsed, err := liquid.Parse(t.kind, t.source, names)
		if err != nil {
			errs = append(errs, t.problems(err))
			continue
		}
		needs = append(needs, parsed.Needs()...)
	}
	slices.Sort(needs)
	needs = slices.DeleteFunc(slices.Compact(needs), func(name string) bool { return name == "unsubscribe_url" })
	return needs, errors.Join(errs...)
}

// problems says where in the file each is that a template has.
func (t text) problems(err error) error {
	r := &document.Reader{File: t.file}
	path := ""
	if t.kind == liquid.Subject {
		path = t.part
	}
	list := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		list = several.Unwrap()
	}
	for _, one := range list {
		line, what := 1, one.Error()
		if at, ok := errors.AsType[*liquid.Error](one); ok {
			line, what = max(1, at.Line), at.Problem
		}
		r.Problemf(t.line+line-1, path, "template_error: %s", what)
	}
	return r.Err()
}

// Message makes what each recipient gets.
func (f *File) Message() (*campaign.Message, error) {
	opts := campaign.MessageOptions{Channel: f.Request.Channel, Purpose: f.Request.Purpose, From: f.Request.From, ReplyTo: f.Request.ReplyTo}
	return campaign.NewMessage(liquid.Engine, f.Content, opts)
}
