package twilio

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net/http"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
)

// unreachable are the codes of a message that did not arrive for a reason of the number's:
// others are about the sender, the text or the account. Each may pass.
var unreachable = []string{"30003", "30005", "30006"}

// ReadEvents implements [delivery.EventReader]: it reads what StatusCallback is told of
// messages and calls. A request is signed over the URL that Twilio was given and the form
// that it brings. It says neither when it was signed nor under which id: who has seen one
// can repeat it, which changes nothing.
func (p *Provider) ReadEvents(r *http.Request, body []byte, _ time.Time) (delivery.Told, error) {
	if p.opts.EventToken == "" || p.opts.StatusCallback == "" {
		return delivery.Told{}, delivery.ErrNoEvents
	}
	form, err := url.ParseQuery(string(body))
	if err != nil || !p.isSigned(r, form) {
		return delivery.Told{}, delivery.ErrUnverified
	}
	marker := r.URL.Query().Get("ob")
	sid, status := form.Get("MessageSid"), form.Get("MessageStatus")
	if call := form.Get("CallSid"); call != "" {
		return told(marker, call, form.Get("CallStatus"), form, called)
	}
	return told(marker, sid, status, form, written)
}

// told is what one callback says.
func told(marker, sid, status string, form url.Values, said func(status string, form url.Values) (delivery.Said, string)) (delivery.Told, error) {
	if r := form.Get("AccountSid"); !anySID.MatchString(sid) || status == "" || r != "" && !accountSID.MatchString(r) {
		return delivery.Told{}, errors.New("the body is no status of a message or a call")
	}
	what, code := said(status, form)
	if what == "" {
		return delivery.Told{Other: 1}, nil
	}
	e := delivery.StatusEvent{Said: what, ID: sid + ":" + status, Delivery: marker, MessageID: sid, Code: code}
	if at, err := mail.ParseDate(form.Get("Timestamp")); err == nil {
		e.At = at
	}
	return delivery.Told{Events: []delivery.StatusEvent{e}}, nil
}

// written says what a message's status is.
func written(status string, form url.Values) (delivery.Said, string) {
	code := form.Get("ErrorCode")
	switch status {
	case "accepted", "queued", "scheduled", "sending", "sent":
		return delivery.SaidAccepted, ""
	case "delivered":
		return delivery.SaidDelivered, ""
	case "read":
		return delivery.SaidOpened, ""
	case "failed", "undelivered", "canceled":
		if slices.Contains(unreachable, code) {
			return delivery.SaidSoftBounced, code
		}
		return delivery.SaidDropped, code
	}
	return "", ""
}

// called says what a call's status is, and how it ended.
func called(status string, form url.Values) (delivery.Said, string) {
	switch status {
	case "queued", "initiated", "ringing", "in-progress":
		return delivery.SaidAccepted, ""
	case "completed":
		if by := form.Get("AnsweredBy"); by != "" {
			return delivery.SaidAnswered, by // human, machine_end_beep and the like
		}
		return delivery.SaidAnswered, status
	case "busy", "no-answer", "failed", "canceled":
		return delivery.SaidAnswered, status
	}
	return "", ""
}

// isSigned reports whether Twilio has signed a request: over the URL of StatusCallback with
// the query that it has, since a proxy may have changed the rest; with or without the
// port, since some of Twilio's programs sign the one and some the other, and with or without
// the fragment, of which nothing that Twilio publishes says whether it is signed.
func (p *Provider) isSigned(r *http.Request, form url.Values) bool {
	given, err := base64.StdEncoding.Strict().DecodeString(r.Header.Get("X-Twilio-Signature"))
	base, wrong := url.Parse(p.opts.StatusCallback)
	if err != nil || wrong != nil || len(r.Header.Values("X-Twilio-Signature")) != 1 || len(given) != sha1.Size {
		return false
	}
	base.RawQuery = r.URL.RawQuery
	fragment := "#" + cmp.Or(base.EscapedFragment(), repeats)
	base.Fragment, base.RawFragment = "", ""
	usual := map[string]string{"https": ":443", "http": ":80"}[base.Scheme]
	without := *base
	without.Host = base.Hostname()
	with := *base
	if base.Port() == "" {
		with.Host += usual
	}
	match := false
	for _, target := range []string{base.String(), with.String(), without.String()} {
		for _, signed := range []string{target, target + fragment} {
			mac := hmac.New(sha1.New, []byte(p.opts.EventToken))
			mac.Write([]byte(signedText(signed, form)))
			match = hmac.Equal(given, mac.Sum(nil)) || match
		}
	}
	return match
}

// signedText is what Twilio signs: the URL, and each field's name with each of its values,
// both sorted, a value once.
func signedText(target string, form url.Values) string {
	var b strings.Builder
	b.WriteString(target)
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		values := slices.Clone(form[name])
		slices.Sort(values)
		for _, v := range slices.Compact(values) {
			b.WriteString(name + v)
		}
	}
	return b.String()
}
