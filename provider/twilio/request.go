package twilio

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
)

// Message is what a delivery over sms says.
type Message struct {
	Text string `json:"text"` // up to 1600 characters
}

// Call is what a delivery over voice says: one of Text, Twiml and URL.
type Call struct {
	Text  string `json:"text,omitempty"`  // what Twilio's voice says; campaigns' scripts are that
	Twiml string `json:"twiml,omitempty"` // a <Response> of up to 4000 characters
	URL   string `json:"url,omitempty"`   // that Twilio asks for one when somebody answers
	// Timeout is for how many seconds it rings, up to 600. Default: as long as Twilio
	// does, a minute.
	Timeout int `json:"timeout,omitempty"`
	// MachineDetection is Enable or DetectMessageEnd, as Twilio has it. Default: nobody
	// tells a machine from a person.
	MachineDetection string `json:"machine_detection,omitempty"`
}

const (
	mostText  = 1600 // characters
	mostTwiml = 4000 // characters
)

// Render makes the body of POST Messages.json or Calls.json. The recipient is a number
// with + and its country's code.
func (p *Provider) Render(d delivery.Draft) ([]byte, error) {
	if !number.MatchString(d.Recipient) {
		return nil, errors.New("the recipient is no number with + and its country's code, such as +16505551234")
	}
	form := url.Values{"To": {d.Recipient}}
	var err error
	switch d.Channel {
	case delivery.SMS:
		err = p.text(form, d.Payload)
	case delivery.Voice:
		err = p.call(form, d)
	default:
		err = errors.New("the channel is neither sms nor voice")
	}
	if err != nil {
		return nil, err
	}
	if p.opts.StatusCallback != "" {
		form.Set("StatusCallback", marked(p.opts.StatusCallback, d.ID))
	}
	return []byte(form.Encode()), nil
}

// repeats asks Twilio, by the fragment of the URL that it calls, to call again up to five
// times, within the 15 seconds that it takes for all: of itself it calls once more
// if it could not connect, and never where the answer is a 503.
const repeats = "rc=5&rp=5xx,ct,rt"

// marked adds the delivery's id to the query of a URL that New has checked, and
// repeats, unless it says itself how often it is called.
func marked(callback, id string) string {
	u, err := url.Parse(callback)
	if err != nil {
		return callback
	}
	u.RawQuery = strings.TrimPrefix(u.RawQuery+"&ob="+url.QueryEscape(id), "&")
	if u.Fragment == "" {
		u.Fragment = repeats
	}
	return u.String()
}

func (p *Provider) text(form url.Values, payload json.RawMessage) error {
	var m Message
	if err := adapter.ReadPayload(payload, &m, "what a message has", "text"); err != nil {
		return err
	}
	switch {
	case strings.TrimSpace(m.Text) == "":
		return errors.New("the payload has no text")
	case utf8.RuneCountInString(m.Text) > mostText:
		return fmt.Errorf("the text has over %d characters", mostText)
	}
	form.Set("Body", m.Text)
	if p.opts.MessagingServiceSID != "" {
		form.Set("MessagingServiceSid", p.opts.MessagingServiceSID)
	} else {
		form.Set("From", p.opts.From)
	}
	return nil
}

// given is how many ways there are of what is heard.
func (c Call) given() (n int) {
	for _, one := range []string{c.Text, c.Twiml, c.URL} {
		if one != "" {
			n++
		}
	}
	return n
}

func (p *Provider) call(form url.Values, d delivery.Draft) error {
	var c Call
	if err := adapter.ReadPayload(d.Payload, &c, "what a call has", "text, twiml, url, timeout and machine_detection"); err != nil {
		return err
	}
	switch {
	case !number.MatchString(p.opts.From):
		return errors.New("the provider has no number that calls: its From is none")
	case c.given() != 1:
		return errors.New("the payload has none of text, twiml and url, or several")
	case c.Text != "" && strings.TrimSpace(c.Text) == "":
		return errors.New("the payload's text is empty")
	case c.Timeout < 0 || c.Timeout > 600:
		return errors.New("the payload's timeout is not from 1 to 600 seconds")
	case c.MachineDetection != "" && c.MachineDetection != "Enable" && c.MachineDetection != "DetectMessageEnd":
		return errors.New("the payload's machine_detection is neither Enable nor DetectMessageEnd")
	}
	if c.Text != "" {
		var said strings.Builder
		if err := xml.EscapeText(&said, []byte(c.Text)); err != nil {
			return err
		}
		c.Twiml = "<Response><Say>" + said.String() + "</Say></Response>"
	}
	if c.Twiml != "" {
		if utf8.RuneCountInString(c.Twiml) > mostTwiml {
			return fmt.Errorf("the twiml has over %d characters", mostTwiml)
		}
		if !isResponse(c.Twiml) {
			return errors.New("the twiml is no well-formed <Response>, so nobody would hear it")
		}
		form.Set("Twiml", c.Twiml)
	} else {
		u, err := url.Parse(c.URL)
		if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Hostname() == "" || strings.Contains(u.Hostname(), "_") {
			return errors.New("the payload's url is not an http or https URL without an underscore in its host")
		}
		form.Set("Url", c.URL)
	}
	if d.SandboxFor != "" && !onlySays(c.Twiml) {
		form.Del("Url")
		form.Set("Twiml", notCarriedOut)
	}
	form.Set("From", p.opts.From)
	if c.Timeout > 0 {
		form.Set("Timeout", strconv.Itoa(c.Timeout))
	}
	if c.MachineDetection != "" {
		form.Set("MachineDetection", c.MachineDetection)
	}
	return nil
}

// notCarriedOut is heard in the sandbox instead of what may ring or write to somebody else.
const notCarriedOut = "<Response><Say>This is a call to the sandbox. What it would do beyond speaking is not carried out.</Say></Response>"

// harmless are the elements of TwiML of which nobody but who is called hears.
var harmless = []string{"Response", "Say", "Pause", "break", "emphasis", "lang", "p", "phoneme", "prosody", "s", "say-as", "sub", "w"}

// onlySays reports whether a well-formed <Response> says something, and does nothing else.
func onlySays(twiml string) bool {
	dec := xml.NewDecoder(strings.NewReader(twiml))
	dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	for found := false; ; {
		token, err := dec.Token()
		if err != nil {
			return found
		}
		if e, ok := token.(xml.StartElement); ok {
			if found = slices.Contains(harmless, e.Name.Local); !found {
				return false
			}
		}
	}
}

// isResponse reports whether a text is one well-formed element called Response.
func isResponse(twiml string) bool {
	dec := xml.NewDecoder(strings.NewReader(twiml))
	dec.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // JSON is UTF-8
	depth, found := 0, false
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return found && depth == 0
		}
		if err != nil {
			return false
		}
		switch t := token.(type) {
		case xml.StartElement:
			if depth == 0 && (found || t.Name.Local != "Response") {
				return false
			}
			found = true
			depth++
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth == 0 && len(bytes.TrimSpace(t)) > 0 {
				return false
			}
		}
	}
}
