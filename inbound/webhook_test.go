package inbound_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/inbound"
)

const standardSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// The vector is Standard Webhooks' own.
func TestWebhook_StandardVector(t *testing.T) {
	t.Parallel()
	const body = `{"test": 2432232314}`
	at := time.Unix(1614265330, 0)
	const signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	h := func(signatures string) http.Header {
		return http.Header{"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {signatures}}
	}
	s := opened(t)(inbound.Webhook(inbound.WebhookOptions{Secrets: []string{platformSecret, standardSecret}, Sender: "$.test"}))
	want := inbound.Received{Events: []inbound.Event{{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Sender: "2432232314", ReplyTo: "2432232314", Kind: "external_id", Body: json.RawMessage(body)}}}
	for _, signatures := range []string{signature, "v1," + strings.Repeat("A", 43) + "= v1a,x " + signature + " v2,x"} {
		got, err := s.Read(sent(h(signatures), body), []byte(body), at)
		if err != nil {
			t.Fatal(err)
		}
		same(t, signatures, got, want)
	}
	for _, signatures := range []string{"v1a" + signature[2:], signature[3:], "v1,", strings.Replace(signature, "OE=", "OF=", 1), strings.TrimSuffix(signature, "="), strings.ToLower(signature), "v1, " + signature[3:]} {
		refused(t, s, sent(h(signatures), body), body, at, inbound.ErrUnverified)
	}
	refused(t, s, sent(h(signature), body), `{"test": 2432232315}`, at, inbound.ErrUnverified)
	for name, value := range map[string]string{"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJeK", "Webhook-Timestamp": "1614265331"} {
		changed := h(signature)
		changed.Set(name, value)
		refused(t, s, sent(changed, body), body, at, inbound.ErrUnverified)
	}
}

// A header that is named as the id takes the place of webhook-id in what is signed,
// so a replay with another one is refused.
func TestWebhook_StandardUnderOtherNames(t *testing.T) {
	t.Parallel()
	s := opened(t)(inbound.Webhook(inbound.WebhookOptions{
		Secrets: []string{platformSecret}, ID: "header:X-Id", Timestamp: "svix-timestamp", Header: "svix-signature", Sender: "$.from",
	}))
	const body = `{"from":"ann"}`
	h := http.Header{"X-Id": {"7"}, "Svix-Timestamp": {"1700000000"}, "Svix-Signature": {"v1," + base64.StdEncoding.EncodeToString(hmacOf(platformSecret, "7.1700000000."+body))}}
	if got := taken(t, s, h, body); got.Events[0].ID != "7" {
		t.Errorf("the id is %q", got.Events[0].ID)
	}
	for _, id := range []string{"8", "7.1700000000", ""} {
		changed := h.Clone()
		changed.Set("X-Id", id)
		refused(t, s, sent(changed, body), body, signedAt, inbound.ErrUnverified)
	}
	if _, err := s.Read(sent(h, body), []byte(body), signedAt.Add(time.Hour)); err == nil || !strings.Contains(err.Error(), "more than five minutes") {
		t.Error(err)
	}
	// What would move the dot.
	dotted := http.Header{"X-Id": {"7.1700000000"}, "Svix-Timestamp": {"1700000000"}, "Svix-Signature": {"v1," + base64.StdEncoding.EncodeToString(hmacOf(platformSecret, "7.1700000000.1700000000."+body))}}
	refused(t, s, sent(dotted, body), body, signedAt, inbound.ErrUnverified)
	if _, err := s.Read(sent(dotted, body), []byte(body), signedAt); !strings.Contains(err.Error(), "the header X-Id has a dot in it") {
		t.Error(err)
	}
}

func TestWebhook_ASignatureHasOneSpelling(t *testing.T) {
	t.Parallel()
	const body = `{"id":"1","from":"ann"}`
	sum := hmacOf(platformSecret, body)
	in64, inHex := base64.StdEncoding.EncodeToString(sum), hex.EncodeToString(sum)
	last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", in64[42])
	spare := in64[:42] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[last+1]) + "="
	if loose, err := base64.StdEncoding.DecodeString(spare); err != nil || string(loose) != string(sum) {
		t.Fatal("the test's spare bits are none")
	}
	for _, tt := range []struct {
		encoding, prefix, signature string
		ok                          bool
	}{
		{"hex", "", inHex, true},
		{"hex", "", strings.ToUpper(inHex), true},
		{"", "", inHex, true},
		{"hex", "sha256=", "sha256=" + inHex, true},
		{"base64", "", in64, true},
		{"base64", "HMAC ", "HMAC " + in64, true},
		{"hex", "", in64, false},
		{"hex", "", inHex + "00", false},
		{"hex", "", inHex[2:], false},
		{"hex", "", "0x" + inHex, false},
		{"hex", "sha256=", inHex, false},
		{"hex", "sha256=", "SHA256=" + inHex, false},
		{"hex", "sha256=", "sha256=sha256=" + inHex, false},
		{"base64", "", inHex, false},
		{"base64", "", spare, false},
		{"base64", "", in64[:43], false},
		{"base64", "", in64 + "=", false},
		{"base64", "", in64[:20] + "\r\n" + in64[20:], false},
		{"base64", "", in64 + "\n", false},
		{"base64", "", base64.URLEncoding.EncodeToString(append([]byte{0xff}, sum[1:]...)), false},
	} {
		s := opened(t)(inbound.Webhook(inbound.WebhookOptions{Secrets: []string{platformSecret}, Scheme: "hmac", Header: "X-Sum", Encoding: tt.encoding, Prefix: tt.prefix, ID: "$.id", Sender: "$.from"}))
		h := http.Header{"X-Sum": {tt.signature}}
		if tt.ok {
			taken(t, s, h, body)
		} else {
			refused(t, s, sent(h, body), body, signedAt, inbound.ErrUnverified)
		}
	}
	s := opened(t)(inbound.Webhook(inbound.WebhookOptions{Secrets: []string{platformSecret}, Sender: "$.from"}))
	h := http.Header{"Webhook-Id": {"1"}, "Webhook-Timestamp": {"1700000000"}}
	for {
		sum := hmacOf(platformSecret, h.Get("Webhook-Id")+".1700000000."+body)
		if text := base64.StdEncoding.EncodeToString(sum); strings.HasSuffix(text, "0=") {
			h.Set("Webhook-Signature", "v1,"+text)
			taken(t, s, h, body)
			h.Set("Webhook-Signature", "v1,"+strings.TrimSuffix(text, "0=")+"1=")
			refused(t, s, sent(h, body), body, signedAt, inbound.ErrUnverified)
			return
		}
		h.Set("Webhook-Id", h.Get("Webhook-Id")+"1")
	}
}

// What is signed can be read in one way only: nothing moves from a header to the
// next, or to the body, under the same signature.
func TestWebhook_WhatIsSignedIsReadInOneWay(t *testing.T) {
	t.Parallel()
	s := opened(t)(inbound.Webhook(inbound.WebhookOptions{
		Secrets: []string{platformSecret}, Scheme: "hmac", Header: "X-Sum", Timestamp: "X-Time", Signed: "{header:X-Id}-{header:X-From}:{timestamp}{body}", ID: "header:X-Id", Sender: "header:X-From", Text: "$.t",
	}))
	sum := func(id, from, seconds, body string) http.Header {
		return http.Header{"X-Id": {id}, "X-From": {from}, "X-Time": {seconds}, "X-Sum": {hex.EncodeToString(hmacOf(platformSecret, id+"-"+from+":"+seconds+body))}}
	}
	const body = `{"t":"hello"}`
	if e := taken(t, s, sum("1", "a-b", "1700000000", body), body).Events[0]; e.ID != "1" || e.Sender != "a-b" {
		t.Errorf("got %+v", e)
	}
	for _, moved := range []http.Header{sum("1-a", "b", "1700000000", body), sum("1", "a:1", "1700000000", body), sum("1", "a", "17000000001", body), sum("", "a", "1700000000", body)} {
		refused(t, s, sent(moved, body), body, signedAt, inbound.ErrUnverified)
	}
	moved := sum("1", "a", "1700000000", "1"+body)
	moved.Set("X-Time", "17000000001")
	refused(t, s, sent(moved, body), body, signedAt, inbound.ErrUnverified)
	refused(t, s, sent(sum("1", "a", "1700000000", "1"), "1"), "1", signedAt, inbound.ErrInvalid)
}

func TestWebhook_WhereThingsStand(t *testing.T) {
	t.Parallel()
	const body = `{"a":{"b":[{"c":"ann"},{"c":18446744073709551615}]},"to":"https://example.com/x?y=1","n": -7 ,"t":"hi\n\ud83d\ude00","nothing":null,"yes":true,"f":1.5,"x y":"z"}`
	read := func(o inbound.WebhookOptions) (inbound.Received, error) {
		o.Secrets, o.Scheme, o.Header, o.Signed = []string{platformSecret}, "hmac", "X-Sum", "{header:X-Id}.{body}"
		s := opened(t)(inbound.Webhook(o))
		return s.Read(sent(http.Header{"X-Id": {"7"}, "X-Sum": {hex.EncodeToString(hmacOf(platformSecret, "7."+body))}, "X-Twice": {"1", "2"}, "X-Bytes": {"\xff"}}, body), []byte(body), signedAt)
	}
	for _, tt := range []struct {
		give inbound.WebhookOptions
		want inbound.Event
	}{
		{inbound.WebhookOptions{ID: "header:x-id", Sender: "$.a.b[0].c"}, inbound.Event{ID: "7", Sender: "ann", ReplyTo: "ann", Kind: "external_id"}},
		{inbound.WebhookOptions{ID: "$.n", Sender: "$.a.b[1].c", ReplyTo: "$.to", Text: "$.t", Kind: "email"}, inbound.Event{ID: "-7", Sender: "18446744073709551615", ReplyTo: "https://example.com/x?y=1", Kind: "email", Text: "hi\n😀"}},
		{inbound.WebhookOptions{ID: "header:X-Id", Sender: "header:X-Id", ReplyTo: "$.missing", Text: "$.nothing"}, inbound.Event{ID: "7", Sender: "7", Kind: "external_id"}},
		{inbound.WebhookOptions{ID: "header:X-Id", Sender: "$.n", Text: "$.a.b[2].c"}, inbound.Event{ID: "7", Sender: "-7", ReplyTo: "-7", Kind: "external_id"}},
		{inbound.WebhookOptions{ID: "header:X-Id", Sender: "$.n", Text: "header:X-None", Unsigned: true}, inbound.Event{ID: "7", Sender: "-7", ReplyTo: "-7", Kind: "external_id"}},
	} {
		tt.want.Body = json.RawMessage(body)
		got, err := read(tt.give)
		if err != nil {
			t.Fatal(err)
		}
		same(t, tt.give.Sender, got, inbound.Received{Events: []inbound.Event{tt.want}})
	}
	for _, give := range []inbound.WebhookOptions{
		{ID: "$.missing", Sender: "$.n"},
		{ID: "$.n", Sender: "$.missing"},
		{ID: "$.nothing", Sender: "$.n"},
		{ID: "$.yes", Sender: "$.n"},
		{ID: "$.f", Sender: "$.n"},
		{ID: "$.a", Sender: "$.n"},
		{ID: "$.n", Sender: "$.a.b"},
		{ID: "$.n", Sender: "$.n.x"},
		{ID: "$.n", Sender: "$.n[0]"},
		{ID: "$.n", Sender: "$.A.b[0].c"},
		{ID: "$.t", Sender: "$.n"},
		{ID: "$.n", Sender: "$.t"},
		{ID: "$.n", Sender: "$.n", Text: "$.a"},
		{ID: "$.n", Sender: "$.n", Text: "$.yes"},
		{ID: "$.n", Sender: "$.n", ReplyTo: "$.t"},
		{ID: "$.n", Sender: "header:X-Twice", Unsigned: true},
		{ID: "$.n", Sender: "header:X-Bytes", Unsigned: true},
		{ID: "$.n", Sender: "$.n", Text: "header:X-Bytes", Unsigned: true},
		{ID: "header:X-None", Sender: "$.n", Unsigned: true},
	} {
		if got, err := read(give); err == nil || !strings.HasPrefix(err.Error(), inbound.ErrInvalid.Error()+": ") {
			t.Errorf("%+v: %+v, %v", give, got, err)
		}
	}
}

// An id that is not signed is taken only if the options say so: who has seen a
// request could have it executed again under another one.
func TestWebhook_HeadersThatAreNotSigned(t *testing.T) {
	t.Parallel()
	for _, o := range []inbound.WebhookOptions{
		{Scheme: "hmac", Header: "X-Sum", ID: "header:X-Id", Sender: "$.from"},
		{Scheme: "hmac", Header: "X-Sum", ID: "header:X-Sum", Sender: "$.from"},
		{Scheme: "hmac", Header: "X-Sum", Timestamp: "X-Time", Signed: "{timestamp}.{body}", ID: "header:x-id", Sender: "$.from"},
		{Scheme: "hmac", Header: "X-Sum", ID: "$.id", Sender: "header:X-Id"},
		{Scheme: "hmac", Header: "X-Sum", ID: "$.id", Sender: "$.from", ReplyTo: "header:X-Id"},
		{ID: "header:X-Other", Sender: "header:X-Id"},
		{Sender: "$.from", Text: "header:X-Id"},
	} {
		o.Secrets = []string{platformSecret}
		s, err := inbound.Webhook(o)
		if s != nil || err == nil || !strings.Contains(err.Error(), "which is not signed: who repeats a request could change it") {
			t.Errorf("%+v: %v", o, err)
		}
		o.Unsigned = true
		opened(t)(inbound.Webhook(o))
	}
	s := opened(t)(inbound.Webhook(inbound.WebhookOptions{Secrets: []string{platformSecret}, ID: "header:X-Id", Sender: "$.from", Unsigned: true}))
	const body = `{"from":"ann"}`
	h := http.Header{"Webhook-Id": {"1"}, "Webhook-Timestamp": {"1700000000"}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(hmacOf(platformSecret, "1.1700000000."+body))}}
	for _, id := range []string{"7", "8"} {
		h.Set("X-Id", id)
		if e := taken(t, s, h, body).Events[0]; e.ID != id {
			t.Errorf("the id is %q", e.ID)
		}
	}
}

func TestWebhook_OptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	right := inbound.WebhookOptions{Secrets: []string{platformSecret}, Scheme: "hmac", Header: "X-Sum", ID: "$.id", Sender: "$.from"}
	opened(t)(inbound.Webhook(right))
	for want, change := range map[string]func(*inbound.WebhookOptions){
		"Scheme is neither":               func(o *inbound.WebhookOptions) { o.Scheme = "HMAC" },
		"Header is not the name":          func(o *inbound.WebhookOptions) { o.Header = "X Sum" },
		"Encoding is neither":             func(o *inbound.WebhookOptions) { o.Encoding = "base64url" },
		"Kind is not a name":              func(o *inbound.WebhookOptions) { o.Kind = "E-Mail" },
		"Timestamp is not the name":       func(o *inbound.WebhookOptions) { o.Timestamp, o.Signed = "X:", "{timestamp}.{body}" },
		"Encoding is for Scheme hmac":     func(o *inbound.WebhookOptions) { o.Scheme, o.Encoding = "standard", "hex" },
		"Prefix is for Scheme hmac":       func(o *inbound.WebhookOptions) { o.Scheme, o.Prefix = "", "v1=" },
		"Signed is for Scheme hmac":       func(o *inbound.WebhookOptions) { o.Scheme, o.Signed = "", "{body}" },
		"secret 1 begins with \"whsec_\"": func(o *inbound.WebhookOptions) { o.Scheme, o.Secrets = "", []string{"whsec_short"} },
	} {
		o := right
		change(&o)
		if _, err := inbound.Webhook(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for signed, want := range map[string]string{
		"{timestamp}":                               "{body} once, at its end",
		"{body}.{timestamp}":                        "{body} once, at its end",
		"{body}{body}":                              "{body} once, at its end",
		"{timestamp}.{Body}":                        "{body} once, at its end",
		"{header:X-Id}.{body}":                      "needs {timestamp}",
		"{timestamp}{header:X-Id}.{body}":           "after the timestamp",
		"{timestamp}0{body}":                        "after the timestamp",
		"{timestamp}.{header:X-Id}{body}":           "after the header X-Id",
		"{header:X-Id}{timestamp}.{body}":           "after the header X-Id",
		"{timestamp}.{header:}.{body}":              "a brace",
		"{timestamp}.{header}.{body}":               "a brace",
		"{timestamp}.{id}.{body}":                   "a brace",
		"{timestamp}.{{body}":                       "a brace",
		"{timestamp}.{header:X Id}.{body}":          "is none of a header",
		"{timestamp}.{header:X-{timestamp}}.{body}": "a brace",
	} {
		o := right
		o.Timestamp, o.Signed = "X-Time", signed
		if _, err := inbound.Webhook(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", signed, err)
		}
	}
	right.Signed = "{timestamp}.{body}"
	if _, err := inbound.Webhook(right); err == nil || !strings.Contains(err.Error(), "needs {timestamp}, and option Timestamp") {
		t.Errorf("no timestamp: %v", err)
	}
	right.Signed = ""
	for _, where := range []string{"id", "$", "$.", "$..a", "$a", "$.a.", "$.a[", "$.a[]", "$.a[-1]", "$.a[01]", "$.a[1000000]", "$.a[*]", "$.a b", "$.a]", "$[0]x", "@.a", "header:", "header:X Id", "Header:X-Id", "$" + strings.Repeat(".a", 101)} {
		for _, set := range []func(*inbound.WebhookOptions){
			func(o *inbound.WebhookOptions) { o.ID = where }, func(o *inbound.WebhookOptions) { o.Sender = where },
			func(o *inbound.WebhookOptions) { o.ReplyTo = where }, func(o *inbound.WebhookOptions) { o.Text = where },
		} {
			o := right
			set(&o)
			if _, err := inbound.Webhook(o); err == nil || !strings.Contains(err.Error(), "option ") {
				t.Errorf("%q: %v", where, err)
			}
		}
	}
}

// FuzzWebhookSigned looks for two requests that one signature is of: their headers
// differ, and what is signed is the same.
func FuzzWebhookSigned(f *testing.F) {
	const body = `{"a":1}`
	f.Add("-", ":", "1-a", "b")
	f.Add(".", ".", "1", "a.b")
	f.Add("ab", "|", "1a", "abab2")
	f.Add("", "{timestamp}", "1", "2")
	f.Fuzz(func(t *testing.T, first, second, id, from string) {
		s, err := inbound.Webhook(inbound.WebhookOptions{
			Secrets: []string{platformSecret}, Scheme: "hmac", Header: "X-Sum", Timestamp: "X-Time",
			Signed: "{header:X-Id}" + first + "{header:X-From}" + second + "{timestamp}.{body}", ID: "header:X-Id", Sender: "header:X-From",
		})
		if err != nil {
			return
		}
		named := id + first + from
		sum := hex.EncodeToString(hmacOf(platformSecret, named+second+"1700000000."+body))
		isRead := func(id, from string) bool {
			_, err := s.Read(sent(http.Header{"X-Id": {id}, "X-From": {from}, "X-Time": {"1700000000"}, "X-Sum": {sum}}, body), []byte(body), signedAt)
			return err == nil
		}
		if !isRead(id, from) {
			return
		}
		for i := range len(named) {
			after, ok := strings.CutPrefix(named[i:], first)
			if ok && i != len(id) && isRead(named[:i], after) {
				t.Fatalf("one signature is of %q and %q, and of %q and %q", id, from, named[:i], after)
			}
		}
	})
}
