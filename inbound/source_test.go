package inbound_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/inbound"
)

const (
	platformSecret = "a-secret-of-ours-1234567890"
	anotherSecret  = "another-secret-1234567890ab"
)

var signedAt = time.Unix(1_700_000_000, 0)

// platform is how a source's requests are made, as their platform makes them.
type platform struct {
	name  string
	open  func(secrets ...string) (inbound.Source, error)
	sign  func(secret, body string, at time.Time) http.Header
	body  string
	once  []string // the headers by which a request is verified
	keyed bool     // it signs the body
	timed bool     // it signs the time
}

func platforms() []platform {
	return []platform{
		{
			name: "telegram", once: []string{"X-Telegram-Bot-Api-Secret-Token"},
			open: func(secrets ...string) (inbound.Source, error) {
				return inbound.Telegram(inbound.TelegramOptions{Secrets: secrets})
			},
			sign: func(secret, _ string, _ time.Time) http.Header {
				return http.Header{"X-Telegram-Bot-Api-Secret-Token": {secret}}
			},
			body: `{"update_id":9007199254740993,"message":{"message_id":1,"from":{"id":42,"is_bot":false},"chat":{"id":-1001234567890123,"type":"group"},"text":"hello"}}`,
		},
		{
			name: "slack", once: []string{"X-Slack-Signature", "X-Slack-Request-Timestamp"}, keyed: true, timed: true,
			open: func(secrets ...string) (inbound.Source, error) {
				return inbound.Slack(inbound.SlackOptions{Secrets: secrets})
			},
			sign: signSlack,
			body: `{"type":"event_callback","team_id":"T1","event_id":"Ev1","event":{"type":"message","user":"U1","channel":"C1","text":"hello","ts":"1700000000.000100"}}`,
		},
		{
			name: "whatsapp", once: []string{"X-Hub-Signature-256"}, keyed: true,
			open: func(secrets ...string) (inbound.Source, error) {
				return inbound.WhatsApp(inbound.WhatsAppOptions{AppSecrets: secrets, VerifyToken: "token"})
			},
			sign: func(secret, body string, _ time.Time) http.Header {
				return http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(hmacOf(secret, body))}}
			},
			body: `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{"messages":[{"from":"4930123456","id":"wamid.1","type":"text","text":{"body":"hello"}}]}}]}]}`,
		},
		{
			name: "standard", once: []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"}, keyed: true, timed: true,
			open: func(secrets ...string) (inbound.Source, error) {
				return inbound.Webhook(inbound.WebhookOptions{Secrets: secrets, Sender: "$.from", Text: "$.text"})
			},
			sign: func(secret, body string, at time.Time) http.Header {
				seconds := strconv.FormatInt(at.Unix(), 10)
				return http.Header{"Webhook-Id": {"msg_1"}, "Webhook-Timestamp": {seconds}, "Webhook-Signature": {"v1," + base64.StdEncoding.EncodeToString(hmacOf(secret, "msg_1."+seconds+"."+body))}}
			},
			body: `{"from":"ann","text":"hello"}`,
		},
		{
			name: "hmac", once: []string{"X-Id", "X-Time", "X-Sum"}, keyed: true, timed: true,
			open: func(secrets ...string) (inbound.Source, error) {
				return inbound.Webhook(inbound.WebhookOptions{
					Secrets: secrets, Scheme: "hmac", Header: "x-sum", Prefix: "sha256=", Timestamp: "x-time", Signed: "v2|{header:x-id}|{timestamp}|{body}",
					ID: "header:x-id", Sender: "$.from", Text: "$.text",
				})
			},
			sign: func(secret, body string, at time.Time) http.Header {
				seconds := strconv.FormatInt(at.Unix(), 10)
				return http.Header{"X-Id": {"msg_1"}, "X-Time": {seconds}, "X-Sum": {"sha256=" + hex.EncodeToString(hmacOf(secret, "v2|msg_1|"+seconds+"|"+body))}}
			},
			body: `{"from":"ann","text":"hello"}`,
		},
		{
			name: "hmac of the body", once: []string{"X-Sum"}, keyed: true,
			open: func(secrets ...string) (inbound.Source, error) {
				return inbound.Webhook(inbound.WebhookOptions{Secrets: secrets, Scheme: "hmac", Header: "X-Sum", Encoding: "base64", ID: "$.id", Sender: "$.from", Text: "$.text"})
			},
			sign: func(secret, body string, _ time.Time) http.Header {
				return http.Header{"X-Sum": {base64.StdEncoding.EncodeToString(hmacOf(secret, body))}}
			},
			body: `{"id":9007199254740993,"from":"ann","text":"hello"}`,
		},
	}
}

func signSlack(secret, body string, at time.Time) http.Header {
	seconds := strconv.FormatInt(at.Unix(), 10)
	return http.Header{"X-Slack-Request-Timestamp": {seconds}, "X-Slack-Signature": {"v0=" + hex.EncodeToString(hmacOf(secret, "v0:"+seconds+":"+body))}}
}

func hmacOf(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

// eachPlatform runs a test with the source of every platform.
func eachPlatform(t *testing.T, test func(*testing.T, platform, inbound.Source)) {
	t.Parallel()
	for _, p := range platforms() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p, opened(t)(p.open(platformSecret)))
		})
	}
}

func opened(t testing.TB) func(inbound.Source, error) inbound.Source {
	return func(s inbound.Source, err error) inbound.Source {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func sent(h http.Header, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/in/source", strings.NewReader(body))
	r.Header = h
	return r
}

// taken reads a request that must be one.
func taken(t *testing.T, s inbound.Source, h http.Header, body string) inbound.Received {
	t.Helper()
	got, err := s.Read(sent(h, body), []byte(body), signedAt)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return got
}

// refused reads a request that must not be one. The error has nothing that was sent.
func refused(t *testing.T, s inbound.Source, r *http.Request, body string, at time.Time, want error) {
	t.Helper()
	got, err := s.Read(r, []byte(body), at)
	if !errors.Is(err, want) || len(got.Events) > 0 || got.Answer != nil {
		t.Fatalf("%s of %.200q: %d events, error %v; want %v", r.Method, body, len(got.Events), err, want)
	}
	for _, list := range r.Header {
		for _, value := range append(list, platformSecret, body) {
			if len(value) > 8 && strings.Contains(err.Error(), value) {
				t.Errorf("the error %q has %q in it", err, value)
			}
		}
	}
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestSources_TheMissingOptionIsNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		open func() (inbound.Source, error)
		want string
	}{
		{func() (inbound.Source, error) { return inbound.Telegram(inbound.TelegramOptions{}) }, "option Secrets is missing"},
		{func() (inbound.Source, error) { return inbound.Slack(inbound.SlackOptions{}) }, "option Secrets is missing"},
		{func() (inbound.Source, error) { return inbound.WhatsApp(inbound.WhatsAppOptions{}) }, "option AppSecrets is missing\noption VerifyToken is missing"},
		{func() (inbound.Source, error) { return inbound.Webhook(inbound.WebhookOptions{}) }, "option Secrets is missing\noption Sender is missing"},
		{func() (inbound.Source, error) { return inbound.Webhook(inbound.WebhookOptions{Scheme: "hmac"}) }, "option Secrets is missing\noption Header is missing\noption ID is missing\noption Sender is missing"},
	} {
		s, err := tt.open()
		if s != nil || deed.CodeOf(err) != deed.Invalid || !strings.HasSuffix(err.Error(), "source: "+tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

func TestSources_AShortSecretIsNone(t *testing.T) {
	t.Parallel()
	for _, p := range platforms() {
		for _, secrets := range [][]string{{""}, {"fifteen-bytes-x"}, {platformSecret, ""}} {
			if s, err := p.open(secrets...); s != nil || err == nil || !strings.Contains(err.Error(), "ecrets: secret "+strconv.Itoa(len(secrets))) {
				t.Errorf("%s with %q: %v", p.name, secrets, err)
			}
		}
	}
}

func TestSources_ReadWhatWasSigned(t *testing.T) {
	eachPlatform(t, func(t *testing.T, p platform, s inbound.Source) {
		got := taken(t, s, p.sign(platformSecret, p.body, signedAt), p.body)
		if len(got.Events) != 1 || got.Ignored != nil || got.Answer != nil {
			t.Fatalf("got %+v", got)
		}
		e := got.Events[0]
		want := map[string]inbound.Event{
			"telegram":         {ID: "9007199254740993", Sender: "42", Kind: "telegram", ReplyTo: "-1001234567890123"},
			"slack":            {ID: "Ev1", Sender: "T1:U1", Kind: "slack", ReplyTo: "C1"},
			"whatsapp":         {ID: "wamid.1", Sender: "4930123456", Kind: "whatsapp", ReplyTo: "4930123456"},
			"standard":         {ID: "msg_1", Sender: "ann", Kind: "external_id", ReplyTo: "ann"},
			"hmac":             {ID: "msg_1", Sender: "ann", Kind: "external_id", ReplyTo: "ann"},
			"hmac of the body": {ID: "9007199254740993", Sender: "ann", Kind: "external_id", ReplyTo: "ann"},
		}[p.name]
		want.Text, want.Body = "hello", e.Body
		same(t, "the event", e, want)
		if p.name != "whatsapp" {
			same(t, "the body", string(e.Body), p.body)
		}
		again := taken(t, s, p.sign(platformSecret, p.body, signedAt), p.body)
		same(t, "the same request once more", again, got)
	})
}

func TestSources_AWrongByte(t *testing.T) {
	eachPlatform(t, func(t *testing.T, p platform, s inbound.Source) {
		flip := func(text string, i int) string { return text[:i] + string(text[i]^1) + text[i+1:] }
		h := p.sign(platformSecret, p.body, signedAt)
		for i := range len(p.body) {
			if p.keyed {
				refused(t, s, sent(h, p.body), flip(p.body, i), signedAt, inbound.ErrUnverified)
			}
		}
		for _, name := range p.once {
			for i := range len(h.Get(name)) {
				changed := h.Clone()
				changed.Set(name, flip(h.Get(name), i))
				refused(t, s, sent(changed, p.body), p.body, signedAt, inbound.ErrUnverified)
			}
			_, bare, _ := strings.Cut(h.Get(name), "=") // without its version
			for _, value := range []string{bare, h.Get(name) + "0", h.Get(name) + "=", h.Get(name)[1:], "0", "sha256=", "v0=", "v1,", "v1, v1,=", "\xff"} {
				changed := h.Clone()
				changed.Set(name, value)
				refused(t, s, sent(changed, p.body), p.body, signedAt, inbound.ErrUnverified)
			}
		}
		for i := range len(platformSecret) {
			refused(t, s, sent(p.sign(flip(platformSecret, i), p.body, signedAt), p.body), p.body, signedAt, inbound.ErrUnverified)
		}
		refused(t, s, sent(p.sign("", p.body, signedAt), p.body), p.body, signedAt, inbound.ErrUnverified)
	})
}

func TestSources_HeadersThatAreMissingOrThereTwice(t *testing.T) {
	eachPlatform(t, func(t *testing.T, p platform, s inbound.Source) {
		for _, name := range p.once {
			h := p.sign(platformSecret, p.body, signedAt)
			right := h.Get(name)
			for _, values := range [][]string{nil, {}, {""}, {right, right}, {right, "other"}, {"other", right}, {right, ""}} {
				h[name] = values
				refused(t, s, sent(h, p.body), p.body, signedAt, inbound.ErrUnverified)
			}
		}
		refused(t, s, sent(http.Header{}, p.body), p.body, signedAt, inbound.ErrUnverified)
	})
}

func TestSources_FiveMinutesEitherWay(t *testing.T) {
	eachPlatform(t, func(t *testing.T, p platform, s inbound.Source) {
		h := p.sign(platformSecret, p.body, signedAt)
		for later, ok := range map[time.Duration]bool{
			0: true, 5 * time.Minute: true, -5 * time.Minute: true, 24 * time.Hour: !p.timed, -24 * time.Hour: !p.timed,
			5*time.Minute + time.Second: !p.timed, -5*time.Minute - time.Second: !p.timed,
		} {
			if _, err := s.Read(sent(h, p.body), []byte(p.body), signedAt.Add(later)); (err == nil) != ok {
				t.Errorf("%s later: %v", later, err)
			} else if !ok {
				refused(t, s, sent(h, p.body), p.body, signedAt.Add(later), inbound.ErrUnverified)
			}
		}
		for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(-1, 0), time.Unix(1_700_000_000_000, 0), time.Unix(1<<62, 0), time.Unix(-1<<62, 0)} {
			if p.timed {
				refused(t, s, sent(p.sign(platformSecret, p.body, at), p.body), p.body, signedAt, inbound.ErrUnverified)
			}
		}
	})
}

func TestSources_TimesThatAreNoSeconds(t *testing.T) {
	t.Parallel()
	const body = `{"type":"x"}`
	s := slackSource(t)
	for _, seconds := range []string{"+1700000000", "0001700000000", "1700000000.0", "1.7e9", "1_700_000_000", "0x6553f100", " 1700000000", "-1700000000", "99999999999999999999"} {
		h := http.Header{"X-Slack-Request-Timestamp": {seconds}, "X-Slack-Signature": {"v0=" + hex.EncodeToString(hmacOf(platformSecret, "v0:"+seconds+":"+body))}}
		refused(t, s, sent(h, body), body, signedAt, inbound.ErrUnverified)
	}
}

func TestSources_Rotation(t *testing.T) {
	t.Parallel()
	for _, p := range platforms() {
		s := opened(t)(p.open(platformSecret, anotherSecret))
		for _, secret := range []string{platformSecret, anotherSecret} {
			taken(t, s, p.sign(secret, p.body, signedAt), p.body)
		}
		refused(t, s, sent(p.sign(platformSecret+anotherSecret, p.body, signedAt), p.body), p.body, signedAt, inbound.ErrUnverified)
		refused(t, opened(t)(p.open(anotherSecret)), sent(p.sign(platformSecret, p.body, signedAt), p.body), p.body, signedAt, inbound.ErrUnverified)
	}
}

func TestSources_WhatAProxyChangesDoesNotMatter(t *testing.T) {
	eachPlatform(t, func(t *testing.T, p platform, s inbound.Source) {
		h := p.sign(platformSecret, p.body, signedAt)
		want := taken(t, s, h.Clone(), p.body)
		r := httptest.NewRequest(http.MethodPost, "http://inner.example:8080/other/path?hub.mode=subscribe&x=1", nil)
		r.Header = h
		for name, value := range map[string]string{"X-Forwarded-Host": "hooks.example", "X-Forwarded-Proto": "https", "X-Original-Url": "/in/other", "Content-Type": "text/plain", "X-Slack-Retry-Num": "2"} {
			r.Header.Set(name, value)
		}
		got, err := s.Read(r, []byte(p.body), signedAt)
		if err != nil {
			t.Fatal(err)
		}
		same(t, "by a proxy", got, want)
	})
}

func TestSources_OtherMethods(t *testing.T) {
	eachPlatform(t, func(t *testing.T, p platform, s inbound.Source) {
		for _, method := range []string{http.MethodPut, http.MethodHead, http.MethodPatch, http.MethodDelete, "get"} {
			r := sent(p.sign(platformSecret, p.body, signedAt), p.body)
			r.Method = method
			refused(t, s, r, p.body, signedAt, inbound.ErrInvalid)
			r.Header = http.Header{}
			refused(t, s, r, p.body, signedAt, inbound.ErrUnverified)
		}
	})
}

func TestSources_BodiesThatCannotBeRead(t *testing.T) {
	eachPlatform(t, func(t *testing.T, p platform, s inbound.Source) {
		with := func(member string) string { return p.body[:len(p.body)-1] + "," + member + "}" }
		for _, good := range []string{
			with(`"x":` + strings.Repeat("[", 99) + strings.Repeat("]", 99)), with(`"x":"\\u0000 \ud83d\ude00 \u00e9 \\\"\\"`),
			with(`"x":[1e308,-1e-308,12345678901234567890,0.5]`), with(`"x":[{"a":1,"b":{"a":1}},{"a":1},"a","a",{"A":1,"a":2}]`), " \r\n\t" + p.body + " \n",
		} {
			if got := taken(t, s, p.sign(platformSecret, good, signedAt), good); len(got.Events) != 1 {
				t.Errorf("%d events of %q", len(got.Events), good)
			}
		}
		for _, bad := range []string{
			"", " ", "\\", `"\`, `{"x":"\u00`, "x", "null", "1", `"hello"`, "true", "[", "{", "{}", "[]", "[{}]", "{}{}", p.body + p.body, p.body + "x", p.body + "\n1", "\ufeff" + p.body, p.body[1:], p.body[:len(p.body)-1],
			"token=x&team_id=T1", "<xml/>",
			with(`"x":"` + "\x00" + `"`), with(`"\u0000":1,"\ud83d":1`),
			with(`"x":1,"x":1`), with(`"x":1,"\u0078":1`), with(`"x":[{"a":{"b":1,"b":2}}]`), with(`"x":{"a":1,"b":[{}],"a":1}`),
			with(`"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100)), with(`"x":` + strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)),
			strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<17), with(`"x":1,`), with(`"x":01`), with(`"x":NaN`), with(`x:1`), with(`"x":1e65537`), with(`"x":1e-99999999999999999999`),
			with(`"x":[` + strings.Repeat("1e999,", 70) + `1]`), with(`"x":` + strings.Repeat("1", 1001)),
		} {
			refused(t, s, sent(p.sign(platformSecret, bad, signedAt), bad), bad, signedAt, inbound.ErrInvalid)
		}
		// What no text can have. A partner is told; who wrote through a platform is not its
		// fault, nor should a queue stand still for them: U+FFFD is in its place.
		for bad, mended := range map[string]string{
			"\xff": "\uFFFD", "a\xed\xa0\x80b": "a\uFFFDb", `\u0000`: `\ufffd`, `a\\\u0000`: `a\\\ufffd`, `\\u0000\u0000a`: `\\u0000\ufffda`, `\ud83d`: `\ufffd`, `\ude00`: `\ufffd`,
			`\ude00\ud83d`: `\ufffd\ufffd`, `\ud83d\u0041`: `\ufffd\u0041`, `\ud83d \ude00`: `\ufffd \ufffd`, `\ud83d\\ude00`: `\ufffd\\ude00`, `\ud83d\ud83d\ude00`: `\ufffd\ud83d\ude00`,
		} {
			body := strings.Replace(p.body, "hello", bad, 1)
			if slices.Contains([]string{"standard", "hmac", "hmac of the body"}, p.name) {
				refused(t, s, sent(p.sign(platformSecret, body, signedAt), body), body, signedAt, inbound.ErrInvalid)
				continue
			}
			want := strings.Replace(p.body, "hello", mended, 1)
			same(t, body, taken(t, s, p.sign(platformSecret, body, signedAt), body), taken(t, s, p.sign(platformSecret, want, signedAt), want))
		}
	})
}

// FuzzSources reads bodies that their platform has signed, and headers that it has
// not.
func FuzzSources(f *testing.F) {
	for i, p := range platforms() {
		f.Add(i, p.body, "v0=")
		f.Add(i, strings.ReplaceAll(p.body, "1", "0"), "v1,AAAA v1,")
		f.Add(i, `{"update_id":1,"callback_query":{"from":{"id":1},"message":[]},"type":"url_verification","challenge":"x","object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages","value":{"messages":[{"type":"system"},{}],"statuses":{}}}]}]}`, "sha256=\x00")
	}
	f.Add(2, `{"object":"whatsapp_business_account","entry":[]}`, "")
	var sources []inbound.Source
	for _, p := range platforms() {
		sources = append(sources, opened(f)(p.open(platformSecret)))
	}
	f.Fuzz(func(t *testing.T, which int, body, forged string) {
		which = int(uint(which) % uint(len(sources)))
		p, s := platforms()[which], sources[which]
		h := p.sign(platformSecret, body, signedAt)
		got, err := s.Read(sent(h, body), []byte(body), signedAt)
		if (err == nil) == errors.Is(err, inbound.ErrInvalid) || err != nil && (len(got.Events) > 0 || got.Answer != nil || len(err.Error()) > 200) {
			t.Fatalf("%q: %+v, %v", body, got, err)
		}
		for _, e := range got.Events {
			plain := func(text string, longest int) bool {
				return text != "" && len(text) <= longest && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
			}
			if !plain(e.ID, 255) || !plain(e.Sender, 255) || !plain(e.Kind, 63) || !plain(e.ReplyTo, 2048) || strings.Contains(e.Text, "\x00") || !json.Valid(e.Body) {
				t.Fatalf("%q: %+v", body, e)
			}
		}
		name := p.once[len(p.once)-1]
		right := h.Get(name)
		h.Set(name, forged)
		if _, err := s.Read(sent(h, body), []byte(body), signedAt); !errors.Is(err, inbound.ErrUnverified) && !strings.Contains(strings.ToLower(forged), strings.ToLower(right)) {
			t.Fatalf("the forged header %q: %v", forged, err)
		}
	})
}
