package whatsapp_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/whatsapp"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const (
	token    = "EAAJBsecretZA0Z"
	numberID = "106540352242922"
)

func provider(t *testing.T, opts whatsapp.Options) *whatsapp.Provider {
	t.Helper()
	p, err := whatsapp.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func plain(t *testing.T) *whatsapp.Provider {
	t.Helper()
	return provider(t, whatsapp.Options{Token: token, PhoneNumberID: numberID})
}

func newHarness(t *testing.T) providertest.Harness {
	box := &catcher.Mailbox{}
	fake := &catcher.WhatsApp{Mailbox: box, Token: token}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	return providertest.Harness{
		Provider: provider(t, whatsapp.Options{Token: token, PhoneNumberID: numberID, Endpoint: url + "/v23.0"}), Channel: delivery.Chat, Recipient: "16505551234", Sandbox: "US.1349",
		Payload: json.RawMessage(`{"text": "canary-7f3a"}`), Secrets: []string{token},
		Accepted: box.Raw, Recipients: box.Recipients, Calls: fake.Faults.Count,
		Fail: func(how providertest.Fault, times int) { fake.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted,
			providertest.ResetBefore, providertest.ResetAccepted, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage,
			providertest.ServerError, providertest.Unauthorized, providertest.OptedOut,
		},
		Reused: gate.Reused, Down: gate.Down, Up: gate.Up,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, newHarness, nil)
}

// The bytes are those of Meta's documentation; testdata names the source.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/text.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Source string          `json:"source"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatal(err)
	}
	got, err := plain(t).Render(delivery.Draft{
		ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Recipient: "+16505551234",
		Payload: json.RawMessage(`{"text": "see https://example.com", "preview_url": true, "reply_to": "wamid.HBgL"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var want, is any
	if json.Unmarshal(fixture.Body, &want) != nil || json.Unmarshal(got, &is) != nil {
		t.Fatalf("no JSON: %s", got)
	}
	if diff := cmp.Diff(want, is); diff != "" {
		t.Error(diff)
	}
}

// A message goes to a number, a user id or a group, and is a text, a template or what can be
// chosen from.
func TestRender_WhoAndWhat(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{
		"16505551234":                             `"recipient_type":"individual","to":"16505551234"`,
		"US.13491208655302741918":                 `"recipient_type":"individual","recipient":"US.13491208655302741918"`,
		"US.ENT.11815799212886844830":             `"recipient_type":"individual","recipient":"US.ENT.11815799212886844830"`,
		"Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM": `"recipient_type":"group","to":"Y2FwaV9ncm91cDoxNzA1NTU1MDEzOToxMjAzNjM"`,
	} {
		got, err := plain(t).Render(delivery.Draft{Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)})
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, %v", to, got, err)
		}
	}
	for payload, want := range map[string]string{
		`{"template": {"name": "hello", "language": {"code": "en"}}}`: `"type":"template","template":{"name":"hello","language":{"code":"en"}}`,
		`{"interactive": {"type": "button"}}`:                         `"type":"interactive","interactive":{"type":"button"}`,
	} {
		got, err := plain(t).Render(delivery.Draft{Recipient: "16505551234", Payload: json.RawMessage(payload)})
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, %v", payload, got, err)
		}
	}
}

// What no message can be made of is refused, in words that do not repeat it.
func TestRender_Bad(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{}`:              "none of text, template and interactive",
		`{"text": " \n"}`: "none of text, template and interactive",
		`{"text": "canary", "template": {"name": "x"}}`: "or more than one",
		`{"template": "canary"}`:                        "template is no object",
		`{"template": {"name": "canary"}}`:              "template has no name, or no language",
		`{"interactive": []}`:                           "interactive is no object",
		`{"text": 7}`:                                   "the payload's text is not what a message has",
		`{"text": "canary", "to": "16505551234"}`:       "the payload is no JSON object of text",
		`["canary"]`:                                    "is not what a message has",
		`{"text": "` + strings.Repeat("ä", 4097) + `"}`: "the text has over 4096 characters",
	} {
		_, err := plain(t).Render(delivery.Draft{Recipient: "16505551234", Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.40s: %v", payload, err)
		}
	}
	for _, to := range []string{"", "ann", "030123456", "+49 30 123456", "123", "1234567890123456", "us.1", "US.", "USA.1", "Y2FwaV9ncm91cDo", "16505551234 "} {
		if _, err := plain(t).Render(delivery.Draft{Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)}); err == nil {
			t.Errorf("%q is taken for a recipient", to)
		}
	}
}

// What somebody wrote is answered where they wrote it, by what the source says.
func TestRender_AnswersWhatWasWritten(t *testing.T) {
	t.Parallel()
	const secret = "a secret of 16 letters"
	source, err := inbound.WhatsApp(inbound.WhatsAppOptions{AppSecrets: []string{secret}, VerifyToken: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		`{"id":"wamid.1","from":"16505551234"}`:                               `"to":"16505551234"`,
		`{"id":"wamid.2","from_user_id":"US.1349"}`:                           `"recipient":"US.1349"`,
		`{"id":"wamid.3","from":"16505551234","group_id":"Y2FwaV9ncm91cDox"}`: `"recipient_type":"group","to":"Y2FwaV9ncm91cDox"`,
	} {
		body := `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{"messages":[` + message + `]}}]}]}`
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		r := httptest.NewRequest(http.MethodPost, "/in/phone", strings.NewReader(body))
		r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		got, err := source.Read(r, []byte(body), time.Now())
		if err != nil || len(got.Events) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		text, err := plain(t).Render(delivery.Draft{Recipient: got.Events[0].ReplyTo, Payload: json.RawMessage(`{"text": "yes"}`)})
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
	}
}

// WhatsApp's answers, each for what it is; of what it says nothing is repeated, which may
// name the recipient.
func TestSend_Answers(t *testing.T) {
	t.Parallel()
	for answer, c := range map[string]struct {
		status int
		want   delivery.Status
		says   string
	}{
		`{"error":{"message":"canary","code":131047,"error_data":{"details":"16505551234"}}}`: {400, delivery.Failed, "code 131047: their last message is over 24 hours old"},
		`{"error":{"message":"canary","code":131050}}`:                                        {400, delivery.Skipped, "code 131050: the recipient wants no marketing"},
		`{"error":{"message":"canary","code":999999}}`:                                        {400, delivery.Failed, "status 400, code 999999"},
		`<html>canary</html>`: {404, delivery.Failed, "status 404"},
		`{"messaging_product":"whatsapp","messages":[{"id":"wamid.HBgL"}]}`: {200, delivery.Sent, ""},
	} {
		h := newHarness(t)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(answer))
		}))
		t.Cleanup(server.Close)
		h.Provider = provider(t, whatsapp.Options{Token: token, PhoneNumberID: numberID, Endpoint: server.URL})
		e := providertest.Deliver(t, h)
		if e.Status != c.want || !strings.Contains(e.LastError, c.says) || strings.Contains(e.LastError, "canary") || strings.Contains(e.LastError, "16505551234") {
			t.Errorf("%s: %s with %q", answer, e.Status, e.LastError)
		}
		if c.want == delivery.Sent && e.ProviderMessageID != "wamid.HBgL" {
			t.Errorf("message id %q", e.ProviderMessageID)
		}
	}
}

// An error without a code that can be read says nothing, and its status speaks: of 504 and 200 nobody knows, and nothing is sent again.
func TestSend_AnErrorWithoutACode(t *testing.T) {
	t.Parallel()
	for answer, status := range map[string]int{
		`{"error":{"message":"canary"}}`: http.StatusGatewayTimeout, `{"error":{"code":"canary"}}`: http.StatusBadGateway, `{"error":{}}`: http.StatusOK,
	} {
		h := newHarness(t)
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls.Add(1)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(answer))
		}))
		t.Cleanup(server.Close)
		h.Provider = provider(t, whatsapp.Options{Token: token, PhoneNumberID: numberID, Endpoint: server.URL})
		e := providertest.Deliver(t, h)
		if e.Status != delivery.Sending || e.DoubtSince == nil || calls.Load() != 1 || strings.Contains(e.LastError, "code 0") {
			t.Errorf("%s: %s after %d calls, %q %q", answer, e.Status, calls.Load(), e.LastError, e.DoubtReason)
		}
	}
}

// What WhatsApp says of the account says nothing of the message, whatever the status: it is sent when that is over.
func TestSend_AnswersAboutTheAccount(t *testing.T) {
	t.Parallel()
	for code, status := range map[int]int{131057: http.StatusInternalServerError, 133010: http.StatusBadRequest} {
		h := newHarness(t)
		var calls atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) == 1 {
				w.WriteHeader(status)
				_, _ = fmt.Fprintf(w, `{"error":{"message":"canary","code":%d}}`, code)
				return
			}
			_, _ = fmt.Fprint(w, `{"messaging_product":"whatsapp","messages":[{"id":"wamid.HBgL"}]}`)
		}))
		t.Cleanup(server.Close)
		h.Provider = provider(t, whatsapp.Options{Token: token, PhoneNumberID: numberID, Endpoint: server.URL})
		e := providertest.Deliver(t, h)
		if e.Status != delivery.Sent || e.Attempts != 1 || !strings.Contains(e.LastError, fmt.Sprintf("code %d: the account", code)) {
			t.Errorf("%d: %s at attempt %d, %q %q", code, e.Status, e.Attempts, e.LastError, e.DoubtReason)
		}
	}
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "canary", "../1", strings.Repeat("1", 31)} {
		_, err := whatsapp.New(whatsapp.Options{Token: "canary x", PhoneNumberID: bad, Endpoint: "ftp://u:canary@x"})
		for _, want := range []string{"Token", "PhoneNumberID", "Endpoint"} {
			if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

// A dry run says what it looked at, and what is wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&catcher.WhatsApp{Mailbox: &catcher.Mailbox{}, Token: token})
	defer server.Close()
	for given, want := range map[string]string{token: "+1 555 0100, Dev", "wrong": "status 401, code 190: the token has expired; make a token"} {
		checks := provider(t, whatsapp.Options{Token: given, PhoneNumberID: numberID, Endpoint: server.URL}).Check(t.Context())
		if len(checks) != 2 || !checks[0].OK || checks[1].OK != (given == token) || !strings.HasPrefix(checks[1].Info, want) {
			t.Errorf("%+v", checks)
		}
	}
}
