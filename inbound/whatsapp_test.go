package inbound_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

func whatsAppSource(t *testing.T) inbound.Source {
	return opened(t)(inbound.WhatsApp(inbound.WhatsAppOptions{AppSecrets: []string{platformSecret}, VerifyToken: "our verify token"}))
}

func signWhatsApp(body string) http.Header {
	return http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(hmacOf(platformSecret, body))}}
}

func whatsAppBody(value string) string {
	return `{"object":"whatsapp_business_account","entry":[{"id":"1","changes":[{"field":"messages","value":{` + value + `}}]}]}`
}

func TestWhatsApp_Vector(t *testing.T) {
	t.Parallel()
	const body = `{"object":"whatsapp_business_account","entry":[]}`
	s := opened(t)(inbound.WhatsApp(inbound.WhatsAppOptions{AppSecrets: []string{"app-secret-for-test"}, VerifyToken: "x"}))
	h := http.Header{"X-Hub-Signature-256": {"sha256=0b85ff0d39597b1c46e187189fc8197095685525b896991097874466e32fa19f"}}
	same(t, "nothing in it", taken(t, s, h, body), inbound.Received{})
	refused(t, s, sent(h, body), body+" ", signedAt, inbound.ErrUnverified)
	refused(t, whatsAppSource(t), sent(h, body), body, signedAt, inbound.ErrUnverified)
}

func TestWhatsApp_Handshake(t *testing.T) {
	t.Parallel()
	s := whatsAppSource(t)
	get := func(query string) *http.Request { return httptest.NewRequest(http.MethodGet, "/in/source?"+query, nil) }
	token := "hub.verify_token=" + url.QueryEscape("our verify token")
	got, err := s.Read(get("hub.mode=subscribe&hub.challenge=1158201444&"+token), nil, signedAt)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the answer", got, inbound.Received{Answer: &inbound.Answer{Status: 200, ContentType: "text/plain; charset=utf-8", Body: []byte("1158201444")}})
	for _, query := range []string{
		"", token, "hub.mode=subscribe&" + token, "hub.challenge=1158201444&" + token, "hub.mode=unsubscribe&hub.challenge=1158201444&" + token,
		"hub.mode=subscribe&hub.challenge=1158201444", "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=", "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=our",
		"hub.mode=subscribe&hub.challenge=1158201444&" + token + "x", "hub.mode=subscribe&hub.challenge=1158201444&" + token + "&" + token, "hub.mode=subscribe&hub.challenge=1&hub.challenge=2&" + token,
		"hub.mode=subscribe&hub.challenge=1158201444&" + token + "&x=%zz", "hub.mode=subscribe;hub.challenge=1158201444;" + token,
	} {
		refused(t, s, get(query), "", signedAt, inbound.ErrUnverified)
	}
	for _, bad := range []string{"", "a+b", "%0d%0aSet-Cookie:x", "%ff", strings.Repeat("1", 256)} {
		refused(t, s, get("hub.mode=subscribe&hub.challenge="+bad+"&"+token), "", signedAt, inbound.ErrInvalid)
	}
	r := get("hub.mode=subscribe&hub.challenge=1158201444&" + token)
	r.Method = http.MethodPost
	refused(t, s, r, "", signedAt, inbound.ErrUnverified)
}

// Each of many messages has what is its own, and nothing of the others.
func TestWhatsApp_ManyMessages(t *testing.T) {
	t.Parallel()
	body := `{"object":"whatsapp_business_account","entry":[{"id":"1","time":5,"changes":[{"field":"messages","value":{"messaging_product":"whatsapp",` +
		`"metadata":{"phone_number_id":"100"},"contacts":[{"wa_id":"491","profile":{"name":"Ann <a>"}},{"wa_id":"492","user_id":"DE.2","profile":{"name":"Bob"}}],` +
		`"messages":[{"from":"491","id":"wamid.1","type":"text","text":{"body":"one"}}, {"from":"492","from_user_id":"DE.2","id":"wamid.2","type":"image","image":{"id":"9","caption":"two"}}],` +
		`"statuses":[{"id":"wamid.7","status":"read","timestamp":"1700000000","biz_opaque_callback_data":"d-7"},{"id":"wamid.8","status":"failed","errors":[{"code":131026}]},{"id":"wamid.9","status":"played"},{"id":"","status":"sent"}]}}]},` +
		`{"id":"2","changes":[{"field":"messages","value":{"messages":[{"from":"493","id":"wamid.3","type":"audio"}],"errors":[{}]}},{"field":"account_update","value":{}}]}]}`
	alone := func(entry, metadata, contact, message string) []byte {
		return []byte(`{"object":"whatsapp_business_account","entry":[{"id":"` + entry + `","changes":[{"field":"messages","value":{"messaging_product":"whatsapp","metadata":` +
			metadata + `,"contacts":[` + contact + `],"messages":[` + message + `]}}]}]}`)
	}
	got := taken(t, whatsAppSource(t), signWhatsApp(body), body)
	same(t, "what it has", got, inbound.Received{
		Events: []inbound.Event{
			{
				ID: "wamid.1", Sender: "491", Kind: "whatsapp", ReplyTo: "491", Text: "one",
				Body: alone("1", `{"phone_number_id":"100"}`, `{"wa_id":"491","profile":{"name":"Ann <a>"}}`, `{"from":"491","id":"wamid.1","type":"text","text":{"body":"one"}}`),
			},
			{
				ID: "wamid.2", Sender: "492", Kind: "whatsapp", Also: []inbound.Identity{{Kind: "whatsapp_user", Value: "DE.2"}}, ReplyTo: "492", Text: "two",
				Body: alone("1", `{"phone_number_id":"100"}`, `{"wa_id":"492","user_id":"DE.2","profile":{"name":"Bob"}}`, `{"from":"492","from_user_id":"DE.2","id":"wamid.2","type":"image","image":{"id":"9","caption":"two"}}`),
			},
			{ID: "wamid.3", Sender: "493", Kind: "whatsapp", ReplyTo: "493", Body: alone("2", "null", "", `{"from":"493","id":"wamid.3","type":"audio"}`)},
		},
		Ignored: map[string]int{"other": 3}, Unreadable: 1,
		Statuses: []delivery.StatusEvent{
			{Said: delivery.SaidOpened, ID: "wamid.7:read", Delivery: "d-7", MessageID: "wamid.7", At: signedAt.UTC()},
			{Said: delivery.SaidSoftBounced, ID: "wamid.8:failed", MessageID: "wamid.8", Code: "131026"},
		},
	})
	// The body of each is a webhook of its own.
	for _, e := range got.Events {
		again := taken(t, whatsAppSource(t), signWhatsApp(string(e.Body)), string(e.Body))
		same(t, e.ID, again, inbound.Received{Events: []inbound.Event{e}})
	}
}

func TestWhatsApp_WhoAndWhat(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]inbound.Event{
		`"from":"491","type":"button","button":{"text":"Yes","payload":"y"}`:                                              {Sender: "491", Kind: "whatsapp", ReplyTo: "491", Text: "Yes"},
		`"from":"491","type":"interactive","interactive":{"type":"button_reply","button_reply":{"id":"y","title":"Yes"}}`: {Sender: "491", Kind: "whatsapp", ReplyTo: "491", Text: "Yes"},
		`"from":"491","type":"interactive","interactive":{"type":"list_reply","list_reply":{"id":"y","title":"Row"}}`:     {Sender: "491", Kind: "whatsapp", ReplyTo: "491", Text: "Row"},
		`"from":"491","group_id":"Y2FwaV9n","type":"text","text":{"body":"all"}`:                                          {Sender: "491", Kind: "whatsapp", ReplyTo: "Y2FwaV9n", Text: "all"},
		`"from_user_id":"US.13491208655302741918","type":"text","text":{"body":"no number"}`:                              {Sender: "US.13491208655302741918", Kind: "whatsapp_user", ReplyTo: "US.13491208655302741918", Text: "no number"},
		`"from":"","from_user_id":"US.1","type":"unsupported","errors":[{}]`:                                              {Sender: "US.1", Kind: "whatsapp_user", ReplyTo: "US.1"},
	} {
		body := whatsAppBody(`"messages":[{"id":"wamid.1",` + message + `}]`)
		got := taken(t, whatsAppSource(t), signWhatsApp(body), body)
		if len(got.Events) != 1 {
			t.Fatalf("%s: %+v", message, got)
		}
		want.ID, want.Body = "wamid.1", got.Events[0].Body
		same(t, message, got, inbound.Received{Events: []inbound.Event{want}})
	}
}

func TestWhatsApp_WhatIsIgnored(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]map[string]int{
		whatsAppBody(`"statuses":[{"id":"1","status":"tomorrow"}]`):                                          {"other": 1},
		whatsAppBody(`"messages":[{"type":"reaction"},{"type":"system"},{"type":"edit"},{"type":"revoke"}]`): {"reaction": 1, "service": 1, "edited": 1, "deleted": 1},
		whatsAppBody(``): nil,
		`{"object":"page","entry":[{"changes":[{"field":"messages","value":{"messages":[{}]}}]}]}`:                                {"other": 1},
		`{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"smb_message_echoes","value":{"messages":[{}]}}]}]}`: {"other": 1},
	} {
		same(t, body, taken(t, whatsAppSource(t), signWhatsApp(body), body), inbound.Received{Ignored: want})
	}
}

// A status's event has the message's id and the status in its own: one that is too long for
// the ledger is passed over, or all of its request would be repeated for ever.
func TestWhatsApp_AStatusWhoseIDIsTooLong(t *testing.T) {
	t.Parallel()
	for length, want := range map[int]inbound.Received{245: {}, 246: {Unreadable: 1}} {
		id := strings.Repeat("x", length)
		if want.Unreadable == 0 {
			want.Statuses = []delivery.StatusEvent{{Said: delivery.SaidDelivered, ID: id + ":delivered", MessageID: id}}
		}
		body := whatsAppBody(`"statuses":[{"id":"` + id + `","status":"delivered"}]`)
		same(t, fmt.Sprint(length), taken(t, whatsAppSource(t), signWhatsApp(body), body), want)
	}
}

func TestWhatsApp_AContactWithoutANumber(t *testing.T) {
	t.Parallel()
	const contact = `{"user_id":"US.1","profile":{"username":"ann"}}`
	body := whatsAppBody(`"contacts":[{"profile":{}},` + contact + `],"messages":[{"id":"wamid.1","from_user_id":"US.1"}]`)
	if e := taken(t, whatsAppSource(t), signWhatsApp(body), body).Events[0]; !strings.Contains(string(e.Body), `"contacts":[`+contact+`]`) {
		t.Errorf("the body is %s", e.Body)
	}
}

// Who has both a number and a user id is known by both, wherever the webhook has the id;
// and by nothing of somebody else's.
func TestWhatsApp_NumberAndUserID(t *testing.T) {
	t.Parallel()
	also := func(user string) []inbound.Identity { return []inbound.Identity{{Kind: "whatsapp_user", Value: user}} }
	for value, want := range map[string][]inbound.Identity{
		`"contacts":[{"wa_id":"491","user_id":"US.1"}],"messages":[{"id":"1","from":"491"}]`:                       also("US.1"),
		`"messages":[{"id":"1","from":"491","from_user_id":"US.1"}]`:                                               also("US.1"),
		`"contacts":[{"wa_id":"491","user_id":"US.2"}],"messages":[{"id":"1","from":"491","from_user_id":"US.1"}]`: also("US.1"),
		`"contacts":[{"wa_id":"492","user_id":"US.2"}],"messages":[{"id":"1","from":"491"}]`:                       nil,
		`"contacts":[{"wa_id":"491"},{"user_id":"US.2"}],"messages":[{"id":"1","from":"491"}]`:                     nil,
		`"contacts":[{"user_id":"US.2"}],"messages":[{"id":"1","from":"","from_user_id":"US.1"}]`:                  nil,
	} {
		body := whatsAppBody(value)
		same(t, value, taken(t, whatsAppSource(t), signWhatsApp(body), body).Events[0].Also, want)
	}
	for _, bad := range []string{
		`"contacts":[{"user_id":"US.2"}],"messages":[{"id":"1"}]`, // whose it is nobody says
		`"messages":[{"id":"1","from":"491","from_user_id":"` + strings.Repeat("x", 256) + `"}]`,
	} {
		same(t, bad, taken(t, whatsAppSource(t), signWhatsApp(whatsAppBody(bad)), whatsAppBody(bad)), inbound.Received{Unreadable: 1})
	}
}

// What cannot be read is counted, and the rest of its request taken: refused, all of it
// would be brought again for days.
func TestWhatsApp_WhatCannotBeRead(t *testing.T) {
	t.Parallel()
	const (
		right = `{"from":"491","id":"wamid.1"}`
		entry = `{"changes":[{"field":"messages","value":{"messages":[` + right + `]}}]}`
	)
	for _, bad := range []string{
		`{"object":"whatsapp_business_account","entry":[1,` + entry + `]}`, `{"object":"whatsapp_business_account","entry":[` + entry + `,{"changes":"x"}]}`,
		`{"object":"whatsapp_business_account","entry":[{"changes":[{"field":"messages"}]},` + entry + `]}`, `{"object":"whatsapp_business_account","entry":[` + entry + `,{"changes":[{"field":"messages","value":[]}]}]}`,
		`{"object":"whatsapp_business_account","entry":[` + entry + `,{"changes":[7]}]}`, `{"object":"whatsapp_business_account","entry":[` + entry + `,` + strings.Replace(entry, "["+right+"]", right, 1) + `]}`,
		whatsAppBody(`"messages":[` + right + `,null]`), whatsAppBody(`"messages":[` + right + `,{"from":"491"}]`),
		whatsAppBody(`"messages":[{"from":"49x","id":"wamid.2"},` + right + `]`), whatsAppBody(`"messages":[` + right + `,{"id":"wamid.2"}]`),
		whatsAppBody(`"messages":[` + right + `,{"from":491,"id":"wamid.2"}]`), whatsAppBody(`"messages":[{"from":"491","id":"` + strings.Repeat("x", 256) + `"},` + right + `]`),
	} {
		got := taken(t, whatsAppSource(t), signWhatsApp(bad), bad)
		if len(got.Events) != 1 || got.Events[0].ID != "wamid.1" || got.Unreadable != 1 {
			t.Errorf("%s: %+v", bad, got)
		}
	}
	for _, body := range []string{`{"object":"whatsapp_business_account","entry":{}}`, `{"object":7,"entry":[]}`, `{"entry":[]}`} {
		refused(t, whatsAppSource(t), sent(signWhatsApp(body), body), body, signedAt, inbound.ErrInvalid)
	}
}

// Each message gets what its change says beside it. That is little, or it would be written as often
// as there are messages, and a request of a mebibyte come to gibibytes: no more of them is
// taken than Meta sends, twice over, and no more bytes than of four requests.
func TestWhatsApp_WhatIsSaidBesideManyMessages(t *testing.T) {
	t.Parallel()
	messages := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"id":"wamid.%d","from":"491"}`, i))
		}
		return `"messages":[` + strings.Join(list, ",") + `]`
	}
	large := func(size int) string { return `"` + strings.Repeat("x", size) + `"` }
	for what, test := range map[string]struct {
		body               string
		events, unreadable int
	}{
		"metadata":         {body: whatsAppBody(`"metadata":` + large(900<<10) + `,` + messages(1000)), unreadable: 1000},
		"contact":          {body: whatsAppBody(`"contacts":[{"wa_id":"491","profile":` + large(900<<10) + `}],` + messages(1000)), unreadable: 1000},
		"entry":            {body: strings.Replace(whatsAppBody(messages(1000)), `"id":"1"`, `"id":`+large(900<<10), 1), unreadable: 1000},
		"somebody else's":  {body: whatsAppBody(`"contacts":[{"wa_id":"492","profile":` + large(900<<10) + `}],` + messages(1)), events: 1},
		"what is small":    {body: whatsAppBody(`"metadata":` + large(15<<10) + `,"contacts":[{"wa_id":"491"}],` + messages(500)), events: 500},
		"twice a thousand": {body: whatsAppBody(messages(2000)), events: 2000},
		"more of them":     {body: whatsAppBody(messages(2003)), events: 2000, unreadable: 3},
	} {
		got := taken(t, whatsAppSource(t), signWhatsApp(test.body), test.body)
		if len(got.Events) != test.events || got.Unreadable != test.unreadable {
			t.Errorf("%s: %d messages, and %d that cannot be read, want %d and %d", what, len(got.Events), got.Unreadable, test.events, test.unreadable)
		}
	}
	body := whatsAppBody(`"metadata":` + large(15<<10) + `,` + messages(1900))
	got := taken(t, whatsAppSource(t), signWhatsApp(body), body)
	held := 0
	for _, e := range got.Events {
		held += len(e.Body)
	}
	if held < 11<<20 || held > 13<<20 || len(got.Events)+got.Unreadable != 1900 {
		t.Errorf("%d messages are of %d bytes, want 12 MiB; %d cannot be read", len(got.Events), held, got.Unreadable)
	}
}

// A webhook has up to 3 MB of messages, more than other platforms' requests. A message of over
// a mebibyte, which nobody can write, is passed over.
func TestWhatsApp_AWebhookIsLarge(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	s := withSource(whatsAppSource(t))
	s.Executor = func(context.Context, inbound.Message) (inbound.Result, error) { return inbound.Result{}, nil }
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 4), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
	message := func(id string, size int) string {
		return `{"from":"4930123456","id":"` + id + `","type":"text","text":{"body":"` + strings.Repeat("x", size) + `"}}`
	}
	large := whatsAppBody(`"messages":[` + message("wamid.1", 900_000) + `,` + message("wamid.2", 1_100_000) + `,` + message("wamid.3", 900_000) + `]`)
	for _, test := range []struct {
		body string
		code int
	}{{large + strings.Repeat(" ", 3<<20+1-len(large)), 413}, {large, 200}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = signWhatsApp(test.body)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		want(t, fmt.Sprint(len(test.body), " bytes"), answer.StatusCode, test.code)
	}
	want(t, "messages", state(t, db), "wamid.1 executed x1 r0, wamid.3 executed x1 r0")
}
