package twilio_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/twilio"
)

func TestMain(m *testing.M) { providertest.Main(m) }

const (
	account   = "AC0123456789abcdef0123456789abcdef"
	authToken = "12345-auth-token-secret"
	keySID    = "SK0123456789abcdef0123456789abcdef"
	service   = "MG0123456789abcdef0123456789abcdef"
	from      = "+15017122661"
	to        = "+15558675310"
	callback  = "https://hooks.example.com/events/twilio?via=a"
)

func provider(t *testing.T, opts twilio.Options) *twilio.Provider {
	t.Helper()
	p, err := twilio.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func number() twilio.Options {
	return twilio.Options{AccountSID: account, AuthToken: authToken, From: from, StatusCallback: callback}
}

// impatient looks up sooner than Twilio would know.
type impatient struct{ *twilio.Provider }

func (p impatient) Capabilities() delivery.Capabilities {
	c := p.Provider.Capabilities()
	c.SettleDelay = 50 * time.Millisecond
	return c
}

func harness(t *testing.T, opts twilio.Options) providertest.Harness {
	box := &catcher.Mailbox{}
	fake := &catcher.Twilio{Mailbox: box, AccountSID: account, User: account, Secret: authToken}
	url, gate := providertest.Serve(t, fake)
	t.Cleanup(fake.Close)
	opts.Endpoint = url
	return providertest.Harness{
		Provider: impatient{provider(t, opts)}, Channel: delivery.SMS, Recipient: to, Sandbox: "+15005550006",
		Payload: json.RawMessage(`{"text": "canary-7f3a"}`), Secrets: []string{authToken},
		Accepted: box.Raw, Recipients: box.Recipients, Calls: fake.Faults.Count,
		Fail: func(how providertest.Fault, times int) { fake.Faults.First(catcher.Fault(how), times) },
		Faults: []providertest.Fault{
			providertest.ForGood, providertest.ForNow, providertest.ForNowAfter, providertest.HangBefore, providertest.HangAccepted,
			providertest.ResetBefore, providertest.ResetAccepted, providertest.SlowAccepted, providertest.Redirect, providertest.Garbage,
			providertest.ServerError, providertest.Unauthorized, providertest.BadAddress, providertest.OptedOut,
		},
		Reused: gate.Reused, Down: gate.Down, Up: gate.Up,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Harness { return harness(t, number()) }, nil)
}

func TestConformance_Service(t *testing.T) {
	t.Parallel()
	opts := number()
	opts.MessagingServiceSID = service
	h := harness(t, opts)
	h.Fail(providertest.ResetAccepted, 1)
	if e := providertest.Deliver(t, h); e.SentAt == nil || !strings.HasPrefix(e.ProviderMessageID, "SM") {
		t.Errorf("%s, %s: %s %s", e.Status, e.ProviderMessageID, e.LastError, e.DoubtReason)
	}
}

func TestConformance_Calls(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Harness {
		opts := number()
		opts.LookUpCalls = true
		return calling(harness(t, opts))
	}, nil)
}

func calling(h providertest.Harness) providertest.Harness {
	h.Channel, h.Payload = delivery.Voice, json.RawMessage(`{"twiml": "<Response><Say>canary-7f3a</Say></Response>"}`)
	return h
}

// The bytes have the parameters of Twilio's specification; testdata names the source.
func TestRender_Fixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct{ Source, SMS, Voice string }
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatal(err)
	}
	p := provider(t, number())
	for _, c := range []struct {
		channel       delivery.Channel
		payload, want string
	}{
		{delivery.SMS, `{"text": "Hi änn & co+"}`, fixture.SMS},
		{delivery.Voice, `{"twiml": "<Response><Say>Ahoy</Say></Response>", "timeout": 30, "machine_detection": "Enable"}`, fixture.Voice},
	} {
		got, err := p.Render(delivery.Draft{ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Channel: c.channel, Recipient: to, Payload: json.RawMessage(c.payload)})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
}

// Who writes is a number, a short code, a name or a messaging service; who calls is a
// number; and who is told may be nobody.
func TestRender_WhoAndWhat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts twilio.Options
		want string
	}{
		{twilio.Options{From: from}, "Body=hello&From=%2B15017122661&To=%2B15558675310"},
		{twilio.Options{From: "12345"}, "Body=hello&From=12345&To=%2B15558675310"},
		{twilio.Options{From: "My Shop"}, "Body=hello&From=My+Shop&To=%2B15558675310"},
		{twilio.Options{MessagingServiceSID: service}, "Body=hello&MessagingServiceSid=" + service + "&To=%2B15558675310"},
		{twilio.Options{From: from, MessagingServiceSID: service}, "Body=hello&MessagingServiceSid=" + service + "&To=%2B15558675310"},
	} {
		c.opts.AccountSID, c.opts.APIKeySID, c.opts.APIKeySecret = account, keySID, "secret"
		p := provider(t, c.opts)
		got, err := p.Render(delivery.Draft{ID: "1", Channel: delivery.SMS, Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)})
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %s, %v", c.opts, got, err)
		}
		got, err = p.Render(delivery.Draft{ID: "1", Channel: delivery.Voice, Recipient: to, Payload: json.RawMessage(`{"url": "https://example.com/twiml?a=b"}`)})
		calls := c.opts.From == from
		if calls && string(got) != "From=%2B15017122661&To=%2B15558675310&Url=https%3A%2F%2Fexample.com%2Ftwiml%3Fa%3Db" || calls != (err == nil) {
			t.Errorf("%+v: %s, %v", c.opts, got, err)
		}
		if slices.Contains(p.Capabilities().Channels, delivery.Voice) != calls {
			t.Errorf("%+v: %v", c.opts, p.Capabilities())
		}
	}
}

// A call to the sandbox reaches nobody else: what would dial, write or be asked for is not
// carried out, and the call says so.
func TestRender_ASandboxCallReachesNobodyElse(t *testing.T) {
	t.Parallel()
	p := provider(t, number())
	const instead = "<Response><Say>This is a call to the sandbox. What it would do beyond speaking is not carried out.</Say></Response>"
	for payload, want := range map[string]string{
		`{"text": "hi & bye"}`: "<Response><Say>hi &amp; bye</Say></Response>",
		`{"twiml": "<Response><Say>hi<break/></Say><Pause/></Response>"}`:                        "<Response><Say>hi<break/></Say><Pause/></Response>",
		`{"twiml": "<Response><Dial>+15550001111</Dial></Response>"}`:                            instead,
		`{"twiml": "<Response><x:Dial xmlns:x='x'>+15550001111</x:Dial></Response>"}`:            instead,
		`{"twiml": "<Response><Say>hi</Say><Message to='+15550001111'>hi</Message></Response>"}`: instead,
		`{"twiml": "<Response><Redirect>https://example.com/</Redirect></Response>"}`:            instead,
		`{"url": "https://example.com/twiml"}`:                                                   instead,
	} {
		draft := delivery.Draft{ID: "1", Channel: delivery.Voice, Recipient: to, SandboxFor: "+15558675399", Payload: json.RawMessage(payload)}
		got, err := p.Render(draft)
		form, _ := url.ParseQuery(string(got))
		if err != nil || form.Get("Twiml") != want || form.Has("Url") {
			t.Errorf("%s: %s, %v", payload, form, err)
		}
		draft.SandboxFor = ""
		if got, err = p.Render(draft); err != nil || strings.Contains(string(got), "sandbox") {
			t.Errorf("%s, to its recipient: %s, %v", payload, got, err)
		}
	}
	if _, err := p.Render(delivery.Draft{Channel: delivery.Voice, Recipient: to, SandboxFor: to, Payload: json.RawMessage(`{"url": "x"}`)}); err == nil {
		t.Error("what would be refused is not, in the sandbox")
	}
}

// What no message and no call can be made of is refused, in words that do not repeat it.
func TestRender_Bad(t *testing.T) {
	t.Parallel()
	p := provider(t, number())
	bad := func(channel delivery.Channel, payload, want string) {
		t.Helper()
		_, err := p.Render(delivery.Draft{Channel: channel, Recipient: to, Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.60s: %v", payload, err)
		}
	}
	bad(delivery.SMS, `{}`, "the payload has no text")
	bad(delivery.SMS, `{"text": " \n"}`, "the payload has no text")
	bad(delivery.SMS, `{"text": 7}`, "the payload's text is not what a message has")
	bad(delivery.SMS, `["canary"]`, "is not what a message has")
	bad(delivery.SMS, `{"text": "canary", "to": "+1"}`, "no JSON object of text")
	bad(delivery.SMS, `{"text": "`+strings.Repeat("ä", 1601)+`"}`, "the text has over 1600 characters")
	bad(delivery.Voice, `{}`, "none of text, twiml and url")
	bad(delivery.Voice, `{"twiml": "<Response/>", "url": "https://canary.example"}`, "or several")
	bad(delivery.Voice, `{"text": "canary", "twiml": "<Response/>"}`, "or several")
	bad(delivery.Voice, `{"text": " "}`, "text is empty")
	bad(delivery.Voice, `{"text": "`+strings.Repeat("&", 900)+`"}`, "the twiml has over 4000 characters")
	bad(delivery.Voice, `{"url": "canary"}`, "url is not an http or https URL")
	bad(delivery.Voice, `{"url": "https://a_canary.example/"}`, "url is not an http or https URL")
	bad(delivery.Voice, `{"url": "https://x.example/", "timeout": 601}`, "timeout is not from 1 to 600")
	bad(delivery.Voice, `{"url": "https://x.example/", "machine_detection": "canary"}`, "machine_detection is neither")
	bad(delivery.Voice, `{"twiml": "<Response><Say>`+strings.Repeat("ä", 4000)+`</Say></Response>"}`, "the twiml has over 4000 characters")
	for _, twiml := range []string{"canary", "<Say>canary</Say>", "<Response><Say>canary</Response>", "<Response>", "<Response/><Response/>", "canary<Response/>", "<Response>a & b</Response>"} {
		payload, _ := json.Marshal(twilio.Call{Twiml: twiml})
		bad(delivery.Voice, string(payload), "no well-formed <Response>")
	}
	bad(delivery.Chat, `{"text": "canary"}`, "neither sms nor voice")
	for _, to := range []string{"", "ann", "15558675310", "+015558675310", "+1 555 8675310", "+1234", "+1234567890123456", to + " ", "whatsapp:" + to} {
		if _, err := p.Render(delivery.Draft{Channel: delivery.SMS, Recipient: to, Payload: json.RawMessage(`{"text": "hello"}`)}); err == nil {
			t.Errorf("%q is taken for a number", to)
		}
	}
	said, err := p.Render(delivery.Draft{Channel: delivery.Voice, Recipient: to, Payload: json.RawMessage(`{"text": "Ann & <Bob>, hello"}`)})
	if form, _ := url.ParseQuery(string(said)); err != nil || form.Get("Twiml") != "<Response><Say>Ann &amp; &lt;Bob&gt;, hello</Say></Response>" {
		t.Errorf("what is said is %s: %v", said, err)
	}
	good, _ := json.Marshal(twilio.Call{Twiml: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response>\n<Say>ahoy</Say></Response>\n"})
	if _, err := p.Render(delivery.Draft{Channel: delivery.Voice, Recipient: to, Payload: good}); err != nil {
		t.Error(err)
	}
}

// What is in doubt is the one message that has all that the request has, made when it was
// called; where there are several, or none, nothing is taken for it.
func TestFind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*twilio.Options, *providertest.Harness)
		list   func(m map[string]any) []map[string]any // of what the request would be listed as
		found  bool
	}{
		"its own":      {nil, only, true},
		"among others": {nil, func(m map[string]any) []map[string]any { return others(m, 12, "body", "another") }, true},
		"after many":   {nil, func(m map[string]any) []map[string]any { return others(m, 150, "body", "another") }, false},
		"twice":        {nil, func(m map[string]any) []map[string]any { return []map[string]any{m, with(m, "sid", sid(2))} }, false},
		"twice, apart": {nil, func(m map[string]any) []map[string]any {
			return append(others(m, 12, "body", "another"), with(m, "sid", sid(90)))
		}, false},
		"shown twice":       {nil, func(m map[string]any) []map[string]any { return []map[string]any{m, m} }, true},
		"nothing":           {nil, func(map[string]any) []map[string]any { return nil }, false},
		"of another text":   {nil, changed("body", "canary-7f3b"), false},
		"to another":        {nil, changed("to", "+15558675311"), false},
		"of another number": {nil, changed("from", "+15017122662"), false},
		"that came in":      {nil, changed("direction", "inbound"), false},
		"of before":         {nil, changed("date_created", time.Now().Add(-5*time.Minute).UTC().Format(time.RFC1123Z)), false},
		"of later":          {nil, changed("date_created", time.Now().Add(5*time.Minute).UTC().Format(time.RFC1123Z)), false},
		"of no time":        {nil, changed("date_created", nil), false},
		"without a sid":     {nil, changed("sid", "canary"), false},
		"of its service":    {byService, only, true},
		"of another one":    {byService, changed("messaging_service_sid", "MG1123456789abcdef0123456789abcdef"), false},
		"a call":            {func(o *twilio.Options, h *providertest.Harness) { o.LookUpCalls = true; *h = calling(*h) }, only, true},
		"a call, unasked":   {func(_ *twilio.Options, h *providertest.Harness) { *h = calling(*h) }, only, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts, h := number(), harness(t, number())
			if c.change != nil {
				c.change(&opts, &h)
			}
			opts.Endpoint = listing(t, c.list)
			h.Provider = impatient{provider(t, opts)}
			e := providertest.Deliver(t, h)
			if c.found && (e.SentAt == nil || e.ProviderMessageID != sid(1)) || !c.found && e.HeldAt == nil {
				t.Errorf("%s as %q: %s %s", e.Status, e.ProviderMessageID, e.LastError, e.DoubtReason)
			}
		})
	}
}

func byService(o *twilio.Options, _ *providertest.Harness) { o.MessagingServiceSID = service }

func sid(n int) string { return fmt.Sprintf("SM%032x", n) }

func only(m map[string]any) []map[string]any { return []map[string]any{m} }

func with(m map[string]any, field string, value any) map[string]any {
	m = maps.Clone(m)
	m[field] = value
	return m
}

func changed(field string, value any) func(map[string]any) []map[string]any {
	return func(m map[string]any) []map[string]any { return only(with(m, field, value)) }
}

// others is n others, of which a field is different, with m in the midst of them.
func others(m map[string]any, n int, field string, value any) (list []map[string]any) {
	for i := range n {
		if list = append(list, with(with(m, "sid", sid(100+i)), field, value)); i == n/2 {
			list = append(list, m)
		}
	}
	return list
}

// listing takes what it is sent, answers nothing that can be read, and lists what it is
// told to of it, in pages of five. The first look-up fails.
func listing(t *testing.T, list func(map[string]any) []map[string]any) string {
	var mu sync.Mutex
	var made []map[string]any
	looked := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, resource, _ := strings.Cut(r.URL.Path, account+"/")
		if r.Method == http.MethodPost {
			_ = r.ParseForm()
			m := map[string]any{
				"sid": sid(1), "direction": "outbound-api", "to": r.Form.Get("To"), "from": r.Form.Get("From"), "body": r.Form.Get("Body"),
				"messaging_service_sid": r.Form.Get("MessagingServiceSid"), "date_created": time.Now().UTC().Format(time.RFC1123Z),
			}
			if resource == "Calls.json" {
				delete(m, "body")
			}
			made = list(m)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if !looked {
			looked = true
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		day := r.FormValue("DateSent>") + r.FormValue("StartTime>")
		if day > time.Now().UTC().Format(time.DateOnly) || day < time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) || r.FormValue("To") != to || r.FormValue("PageSize") != "5" {
			t.Errorf("asks for %s", r.URL.RawQuery)
		}
		page, _ := strconv.Atoi(r.FormValue("Page"))
		q := r.URL.Query()
		q.Set("Page", strconv.Itoa(page+1))
		next := any("https://elsewhere.example" + r.URL.Path + "?" + q.Encode())
		if 5*page+5 >= len(made) {
			next = nil
		}
		part := made[min(5*page, len(made)):min(5*page+5, len(made))]
		_ = json.NewEncoder(w).Encode(map[string]any{strings.ToLower(strings.TrimSuffix(resource, ".json")): part, "next_page_uri": next})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// Every problem of the options is told at once, without their values.
func TestNew_Invalid(t *testing.T) {
	t.Parallel()
	_, err := twilio.New(twilio.Options{
		AccountSID: "canary", AuthToken: "canary x", From: "canary name that is long", MessagingServiceSID: "canary", LookUpCalls: true,
		StatusCallback: "https://u:canary@x", Endpoint: "ftp://u:canary@x",
	})
	for _, want := range []string{"AccountSID", "AuthToken", "From", "MessagingServiceSID", "LookUpCalls", "StatusCallback", "Endpoint"} {
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "option "+want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("lacks %s: %v", want, err)
		}
	}
	for want, change := range map[string]func(*twilio.Options){
		"want one of them":                        func(o *twilio.Options) { o.AuthToken = "" },
		"APIKeySecret: want one":                  func(o *twilio.Options) { o.APIKeySID, o.APIKeySecret = keySID, "x" },
		"option APIKeySecret is empty":            func(o *twilio.Options) { o.AuthToken, o.APIKeySID = "", keySID },
		"option APIKeySID is not":                 func(o *twilio.Options) { o.AuthToken, o.APIKeySID, o.APIKeySecret = "", account, "x" },
		"option APIKeySecret is not visible":      func(o *twilio.Options) { o.AuthToken, o.APIKeySID, o.APIKeySecret = "", keySID, "x y" },
		"From and MessagingServiceSID are both":   func(o *twilio.Options) { o.From = "" },
		"option From is neither":                  func(o *twilio.Options) { o.From = "1" },
		"option StatusCallback is not an http or": func(o *twilio.Options) { o.StatusCallback = "https://a_b.example/" },
	} {
		opts := number()
		change(&opts)
		if _, err := twilio.New(opts); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("lacks %q: %v", want, err)
		}
	}
}

// A dry run says what it looked at, and what is wrong; a key stands for the account.
func TestCheck(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(&catcher.Twilio{Mailbox: &catcher.Mailbox{}, AccountSID: account, User: keySID, Secret: authToken})
	defer server.Close()
	for secret, want := range map[string]string{authToken: "they are accepted", "wrong": "status 401, code 20003: the credentials are refused; take"} {
		opts := twilio.Options{AccountSID: account, APIKeySID: keySID, APIKeySecret: secret, From: from, Endpoint: server.URL}
		checks := provider(t, opts).Check(t.Context())
		if len(checks) != 2 || !checks[0].OK || checks[1].OK != (secret == authToken) || !strings.HasPrefix(checks[1].Info, want) {
			t.Errorf("%+v", checks)
		}
	}
}
