package twilio

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
)

const (
	messageSID = "SM0123456789abcdef0123456789abcdef"
	callSID    = "CA0123456789abcdef0123456789abcdef"
	ourAccount = "AC0123456789abcdef0123456789abcdef"
	eventToken = "12345"
)

func eventReader(t *testing.T, callback, token string) *Provider {
	t.Helper()
	p, err := New(Options{AccountSID: ourAccount, AuthToken: "another", From: "+15017122661", StatusCallback: callback, EventToken: token})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The vectors are those of Twilio's documentation and of its library for Go.
func TestSignedText_Vectors(t *testing.T) {
	t.Parallel()
	const target = "https://mycompany.com/myapp.php?foo=1&bar=2"
	for signature, form := range map[string]url.Values{
		"RSOYDt4T1cUTdK1PDd93/VVr8B8=": {"CallSid": {"CA1234567890ABCDE"}, "Caller": {"+14158675309"}, "Digits": {"1234"}, "From": {"+14158675309"}, "To": {"+18005551212"}},
		"IK+Dwps556ElfBT0I3Rgjkr1wJU=": {"Sid": {"CA123"}, "SidAccount": {"AC123"}, "Digits": {"5678", "1234", "1234"}},
	} {
		mac := hmac.New(sha1.New, []byte(eventToken))
		mac.Write([]byte(signedText(target, form)))
		if got := base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != signature {
			t.Errorf("%v: %s, want %s", form, got, signature)
		}
	}
}

// sign is a request as Twilio makes it to target, that arrives elsewhere.
func sign(target string, form url.Values) (*http.Request, []byte) {
	u, err := url.Parse(target)
	if err != nil {
		panic(err) // a constant is wrong
	}
	mac := hmac.New(sha1.New, []byte(eventToken))
	mac.Write([]byte(signedText(target, form)))
	r := httptest.NewRequest(http.MethodPost, "http://10.0.0.1:8443/events/sms?"+u.RawQuery, nil)
	r.Header.Set("X-Twilio-Signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r, []byte(form.Encode())
}

const callback = "https://hooks.example.com/events/sms"

func TestReadEvents_WhatIsSaid(t *testing.T) {
	t.Parallel()
	message := func(status, code string) url.Values {
		f := url.Values{"MessageSid": {messageSID}, "MessageStatus": {status}, "AccountSid": {ourAccount}, "To": {"+15558675310"}, "A field of tomorrow": {"x"}}
		if code != "" {
			f.Set("ErrorCode", code)
		}
		return f
	}
	call := func(status, by string) url.Values {
		f := url.Values{"CallSid": {callSID}, "CallStatus": {status}, "AccountSid": {ourAccount}, "Timestamp": {"Sun, 22 Feb 2026 23:41:12 +0000"}}
		if by != "" {
			f.Set("AnsweredBy", by)
		}
		return f
	}
	for _, c := range []struct {
		form url.Values
		said delivery.Said
		code string
	}{
		{message("queued", ""), delivery.SaidAccepted, ""},
		{message("sent", ""), delivery.SaidAccepted, ""},
		{message("delivered", ""), delivery.SaidDelivered, ""},
		{message("read", ""), delivery.SaidOpened, ""},
		{message("undelivered", "30003"), delivery.SaidSoftBounced, "30003"},
		{message("undelivered", "30007"), delivery.SaidDropped, "30007"},
		{message("failed", ""), delivery.SaidDropped, ""},
		{message("received", ""), "", ""},
		{call("ringing", ""), delivery.SaidAccepted, ""},
		{call("completed", "human"), delivery.SaidAnswered, "human"},
		{call("completed", "machine_end_beep"), delivery.SaidAnswered, "machine_end_beep"},
		{call("completed", "unknown"), delivery.SaidAnswered, "unknown"},
		{call("completed", ""), delivery.SaidAnswered, "completed"},
		{call("busy", ""), delivery.SaidAnswered, "busy"},
		{call("no-answer", ""), delivery.SaidAnswered, "no-answer"},
		{call("tomorrow", ""), "", ""},
	} {
		r, body := sign(callback+"?ob=d-1", c.form)
		got, err := eventReader(t, callback, eventToken).ReadEvents(r, body, time.Now())
		want := delivery.Told{Other: 1}
		if c.said != "" {
			e := delivery.StatusEvent{Said: c.said, Delivery: "d-1", Code: c.code, MessageID: messageSID}
			e.ID = messageSID + ":" + c.form.Get("MessageStatus")
			if c.form.Has("CallSid") {
				e.MessageID, e.ID, e.At = callSID, callSID+":"+c.form.Get("CallStatus"), time.Date(2026, 2, 22, 23, 41, 12, 0, time.UTC)
			}
			want = delivery.Told{Events: []delivery.StatusEvent{e}}
		}
		if err != nil {
			t.Errorf("%v: %v", c.form, err)
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
			t.Errorf("%v: %s", c.form, diff)
		}
	}
}

// The URL is that which Twilio was given, with or without its port; all else is refused.
func TestReadEvents_WhatIsBelieved(t *testing.T) {
	t.Parallel()
	form := url.Values{"MessageSid": {messageSID}, "MessageStatus": {"delivered"}}
	for _, c := range []struct {
		callback, signedFor string
		want                error
	}{
		{callback, callback + "?ob=d-1", nil},
		{callback, "https://hooks.example.com:443/events/sms?ob=d-1", nil},
		{"https://hooks.example.com:8443/events/sms", "https://hooks.example.com:8443/events/sms?ob=d-1", nil},
		{"https://hooks.example.com:8443/events/sms", "https://hooks.example.com/events/sms?ob=d-1", nil},
		{callback + "?a=b#rc=2", callback + "?a=b&ob=d-1", nil},
		{callback + "?a=b#rc=2", callback + "?a=b&ob=d-1#rc=2", nil},
		{callback, callback + "?ob=d-1#rc=5&rp=5xx,ct,rt", nil},
		{callback, callback + "?ob=d-1#rc=4", delivery.ErrUnverified},
		{callback, "https://evil.example.com/events/sms?ob=d-1", delivery.ErrUnverified},
		{callback, "http://hooks.example.com/events/sms?ob=d-1", delivery.ErrUnverified},
		{"", callback + "?ob=d-1", delivery.ErrNoEvents},
	} {
		r, body := sign(c.signedFor, form)
		if _, err := eventReader(t, c.callback, eventToken).ReadEvents(r, body, time.Now()); !errors.Is(err, c.want) {
			t.Errorf("%s, signed for %s: %v, want %v", c.callback, c.signedFor, err, c.want)
		}
	}
	p := eventReader(t, callback, eventToken)
	r, body := sign(callback+"?ob=d-1", form)
	refused := func(what string, p *Provider, r *http.Request, body []byte) {
		t.Helper()
		if told, err := p.ReadEvents(r, body, time.Now()); !errors.Is(err, delivery.ErrUnverified) || len(told.Events) > 0 {
			t.Errorf("%s: %+v, %v", what, told, err)
		}
	}
	refused("another field", p, r, append(body, "&x=y"...))
	refused("another token", eventReader(t, callback, "12346"), r, body)
	other := r.Clone(t.Context())
	other.URL.RawQuery = "ob=d-2"
	refused("another delivery's marker", p, other, body)
	other = r.Clone(t.Context())
	other.Header.Add("X-Twilio-Signature", other.Header.Get("X-Twilio-Signature"))
	refused("two signatures", p, other, body)
	other.Header.Del("X-Twilio-Signature")
	refused("no signature", p, other, body)
	if _, err := eventReader(t, callback, "").ReadEvents(r, body, time.Now()); !errors.Is(err, delivery.ErrUnverified) {
		t.Errorf("by the auth token, which is another: %v", err)
	}
	for _, bad := range []url.Values{{}, {"MessageSid": {messageSID}}, {"MessageSid": {"x"}, "MessageStatus": {"sent"}}, {"MessageStatus": {"sent"}}} {
		r, body := sign(callback+"?ob=d-1", bad)
		if _, err := p.ReadEvents(r, body, time.Now()); err == nil || errors.Is(err, delivery.ErrUnverified) || strings.Contains(err.Error(), "sent") {
			t.Errorf("%v: %v", bad, err)
		}
	}
}
