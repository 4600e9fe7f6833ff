package catcher

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// says is what becomes of a message or a call, to the URL that its request named. Twilio
// has codes in place of bounces, and knows no complaints.
func (s *Twilio) says(m twilioMade, form url.Values) (list []said) {
	target := form.Get("StatusCallback")
	end := EndOf(m.To)
	if target == "" || end == Silent {
		return nil
	}
	from := form.Get("From")
	if from == "" {
		from = "+15005550006" // whom the messaging service chose
	}
	add := func(more url.Values) {
		form := url.Values{"AccountSid": {m.Account}, "ApiVersion": {"2010-04-01"}, "To": {m.To}, "From": {from}}
		maps.Copy(form, more)
		list = append(list, said{
			url: target, contentType: "application/x-www-form-urlencoded", body: []byte(form.Encode()),
			sign: func(r *http.Request, _ []byte, _ time.Time) { s.sign(r, target, form) }, again: callsAgain(target),
		})
	}
	if m.call {
		status := map[End]string{Bounced: "failed", SoftBounced: "busy", Complained: "no-answer"}[end]
		more := url.Values{
			"CallSid": {m.SID}, "CallStatus": {status}, "Direction": {m.Direction}, "CallbackSource": {"call-progress-events"}, "SequenceNumber": {"0"},
			"Timestamp": {time.Now().UTC().Format(time.RFC1123Z)}, "CallDuration": {"0"}, "Duration": {"0"},
		}
		if status == "" {
			more["CallStatus"], more["CallDuration"], more["Duration"] = []string{"completed"}, []string{"7"}, []string{"1"}
			if form.Has("MachineDetection") {
				more["AnsweredBy"] = []string{"human"}
			}
		}
		add(more)
		return list
	}
	written := func(status, code string) {
		more := url.Values{"MessageSid": {m.SID}, "MessageStatus": {status}, "SmsSid": {m.SID}, "SmsStatus": {status}}
		if code != "" {
			more["ErrorCode"] = []string{code}
		}
		add(more)
	}
	written("sent", "")
	switch end {
	case Bounced:
		written("undelivered", "30006") // a landline, or a carrier that is not reached
	case SoftBounced:
		written("undelivered", "30003") // a handset that is off
	case Complained:
		written("undelivered", "30007") // filtered
	case Unsubscribed:
		written("failed", "21610") // they have written STOP
	default:
		written("delivered", "")
	}
	return list
}

// callsAgain is how often Twilio calls a URL again, and after what, as the URL's fragment
// has it: once, and only where it could not connect, unless that says otherwise.
func callsAgain(target string) func(status, tries int) bool {
	count, policy := 1, "ct"
	if u, err := url.Parse(target); err == nil {
		asked, _ := url.ParseQuery(u.Fragment)
		if n, err := strconv.Atoi(asked.Get("rc")); err == nil {
			count = min(n, 5)
		}
		policy = cmp.Or(asked.Get("rp"), policy)
	}
	return func(status, tries int) bool {
		why := ""
		switch {
		case status == 0:
			why = "ct"
		case status >= 500:
			why = "5xx"
		case status >= 400:
			why = "4xx"
		}
		listed := strings.Split(policy, ",")
		return tries <= count && why != "" && (slices.Contains(listed, why) || slices.Contains(listed, "all"))
	}
}

// sign signs a form for the URL as it was given.
func (s *Twilio) sign(r *http.Request, target string, form url.Values) {
	if u, err := url.Parse(target); err == nil {
		u.Fragment = ""
		target = u.String()
	}
	mac := hmac.New(sha1.New, []byte(s.EventToken))
	mac.Write([]byte(target))
	for _, name := range slices.Sorted(maps.Keys(form)) {
		mac.Write([]byte(name + form.Get(name)))
	}
	r.Header.Set("X-Twilio-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
