package catcher_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/deedhq/deed/internal/catcher"
)

// request is one that a service takes, but for what a case changes.
type request struct {
	method, path, contentType, body string
	header                          map[string]string
	sign                            func(r *http.Request, body string)
}

// change is what makes a request wrong: the text old of the body, or of a header's value, is
// another one.
type change struct {
	what, old, new string
	header         string // "": of the body
	path, method   string // in place of the request's
	status         int
	says           string
}

// refuses checks that a service takes the request, and refuses each change of it, of which it
// takes nothing.
func refuses(t *testing.T, service http.Handler, box *catcher.Mailbox, good request, changes []change) {
	t.Helper()
	ask := func(q request) *httptest.ResponseRecorder {
		r := httptest.NewRequest(q.method, q.path, strings.NewReader(q.body))
		r.Header.Set("Content-Type", q.contentType)
		for name, value := range q.header {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if q.sign != nil {
			q.sign(r, q.body)
		}
		w := httptest.NewRecorder()
		service.ServeHTTP(w, r)
		return w
	}
	for _, c := range changes {
		bad := good
		bad.header = map[string]string{}
		for name, value := range good.header {
			bad.header[name] = value
		}
		switch {
		case c.header == "Content-Type":
			bad.contentType = c.new
		case c.header != "":
			bad.header[c.header] = c.new
		case c.old != "":
			if bad.body = strings.Replace(good.body, c.old, c.new, 1); bad.body == good.body {
				t.Fatalf("%s: the body has no %q", c.what, c.old)
			}
		}
		if c.path != "" {
			bad.path = c.path
		}
		if c.method != "" {
			bad.method = c.method
		}
		if w := ask(bad); w.Code != c.status || !strings.Contains(w.Body.String()+fmt.Sprint(w.Header()), c.says) {
			t.Errorf("%s: %d %s %v, want %d with %q", c.what, w.Code, w.Body, w.Header(), c.status, c.says)
		}
	}
	if n := len(box.List()); n != 0 {
		t.Errorf("%d were taken", n)
	}
	if w := ask(good); w.Code >= 300 || len(box.List()) != 1 {
		t.Errorf("what is right: %d %s", w.Code, w.Body)
	}
}

func many(n int, text string) string { return strings.Repeat(text, n) }

// Each fake refuses what its service's documents refuse (Resend's has a test of its own).

func TestSendGrid_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	good := request{"POST", "/v3/mail/send", "application/json", `{"personalizations":[{"to":[{"email":"b@example.org"}]}],"from":{"email":"a@example.com"},"subject":"s","content":[{"type":"text/plain","value":"t"},{"type":"text/html","value":"<p>t</p>"}]}`, map[string]string{"Authorization": "Bearer SG.x"}, nil}
	refuses(t, &catcher.SendGrid{Mailbox: box, APIKey: "SG.x"}, box, good, []change{
		{what: "no key", header: "Authorization", new: "", status: 401, says: "authorization grant"},
		{what: "another key", header: "Authorization", new: "Bearer SG.y", status: 401, says: "authorization grant"},
		{what: "content type", header: "Content-Type", new: "text/plain", status: 400, says: "body"},
		{what: "unknown field", old: `"subject"`, new: `"surprise":1,"subject"`, status: 400, says: "body"},
		{what: "nobody", old: `[{"email":"b@example.org"}]`, new: `[]`, status: 400, says: "personalizations"},
		{what: "no address", old: "b@example.org", new: "nobody", status: 400, says: "email"},
		{what: "no subject", old: `"subject":"s"`, new: `"subject":""`, status: 400, says: "subject"},
		{what: "HTML first", old: "text/plain", new: "text/html", status: 400, says: "content"},
		{what: "empty", old: `"value":"t"`, new: `"value":""`, status: 400, says: "content.value"},
		{what: "too large", old: `"value":"t"`, new: `"value":"` + many(31<<20, "x") + `"`, status: 413, says: "30 MB"},
		{what: "another path", path: "/v3/mail", status: 404, says: "not found"},
	})
}

// What the activity does not understand is refused, and it shows what was taken: once for each
// recipient, by an argument of its own.
func TestSendGrid_Activity(t *testing.T) {
	t.Parallel()
	fake := &catcher.SendGrid{Mailbox: &catcher.Mailbox{}}
	ask := func(method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer SG.x")
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		fake.ServeHTTP(w, r)
		return w
	}
	if w := ask("POST", "/v3/mail/send", `{"personalizations":[{"to":[{"email":"b@example.org"}],"cc":[{"email":"c@example.org"}]}],"from":{"email":"a@example.com"},"subject":"s","content":[{"type":"text/plain","value":"t"}],"custom_args":{"deed_id":"1"}}`); w.Code != 202 {
		t.Fatal(w.Code, w.Body)
	}
	for query, shows := range map[string]int{
		`(unique_args['deed_id']="1")`: 2, `unique_args['deed_id']="1"&limit=1`: 1, `(unique_args['deed_id']="2")`: 0, `to_email="c@example.org"`: 1, `status="processed"`: 2,
		"": -1, `bad_field="1"`: -1, `unique_args['deed_id']='1'`: -1, `status="processed"&limit=0`: -1, `status="processed"&limit=1001`: -1, `status="processed"&page=2`: -1,
	} {
		query, rest, more := strings.Cut(query, "&")
		if more {
			rest = "&" + rest
		}
		var said struct {
			Messages []struct {
				ID string `json:"msg_id"`
			} `json:"messages"`
		}
		w := ask("GET", "/v3/messages?query="+url.QueryEscape(query)+rest, "")
		if err := json.Unmarshal(w.Body.Bytes(), &said); err != nil || (w.Code == 200) != (shows >= 0) || w.Code != 200 && w.Code != 400 || len(said.Messages) != max(shows, 0) {
			t.Errorf("%s%s: %d %s", query, rest, w.Code, w.Body)
		}
		for _, m := range said.Messages {
			if w := ask("GET", "/v3/messages/"+m.ID, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `{\"deed_id\":\"1\"}`) {
				t.Errorf("%s: %d %s", m.ID, w.Code, w.Body)
			}
		}
	}
	if w := ask("GET", "/v3/messages/none", ""); w.Code != 404 {
		t.Error(w.Code, w.Body)
	}
	fake.NoActivity = true
	if w := ask("GET", "/v3/messages?query=x", ""); w.Code != 401 || !strings.Contains(w.Body.String(), "authorization required") {
		t.Error(w.Code, w.Body)
	}
}

func TestPostmark_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	good := request{"POST", "/email", "application/json", `{"From":"a@example.com","To":"b@example.org","Subject":"s","TextBody":"t","Metadata":{"deed_id":"1"}}`, map[string]string{"X-Postmark-Server-Token": "x", "Accept": "application/json"}, nil}
	refuses(t, &catcher.Postmark{Mailbox: box, Token: "x"}, box, good, []change{
		{what: "no token", header: "X-Postmark-Server-Token", new: "", status: 401, says: `"ErrorCode":10`},
		{what: "another token", header: "X-Postmark-Server-Token", new: "y", status: 401, says: `"ErrorCode":10`},
		{what: "content type", header: "Content-Type", new: "text/plain", status: 422, says: `"ErrorCode":409`},
		{what: "accept", header: "Accept", new: "*/*", status: 422, says: `"ErrorCode":409`},
		{what: "unknown field", old: `"Subject"`, new: `"surprise":1,"Subject"`, status: 422, says: `"ErrorCode":403`},
		{what: "no address", old: "b@example.org", new: "nobody", status: 422, says: `"ErrorCode":300`},
		{what: "empty", old: `"TextBody":"t"`, new: `"TextBody":""`, status: 422, says: `"ErrorCode":300`},
		{what: "long subject", old: `"Subject":"s"`, new: `"Subject":"` + many(2001, "s") + `"`, status: 422, says: `"ErrorCode":300`},
		{what: "long metadata", old: `"deed_id":"1"`, new: `"deed_id":"` + many(81, "1") + `"`, status: 422, says: `"ErrorCode":300`},
		{what: "long name", old: `"deed_id"`, new: `"` + many(21, "n") + `"`, status: 422, says: `"ErrorCode":300`},
		{what: "another path", path: "/emails", status: 404},
	})
}

func TestSES_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	signed := func(key, secret string, at time.Time) func(*http.Request, string) {
		return func(r *http.Request, body string) {
			sum := sha256.Sum256([]byte(body))
			r.Host = "email.eu-central-1.amazonaws.com"
			if err := v4.NewSigner().SignHTTP(r.Context(), aws.Credentials{AccessKeyID: key, SecretAccessKey: secret}, r, hex.EncodeToString(sum[:]), "ses", "eu-central-1", at); err != nil {
				t.Error(err)
			}
		}
	}
	good := request{
		"POST", "/v2/email/outbound-emails", "application/json",
		`{"FromEmailAddress":"a@example.com","Destination":{"ToAddresses":["b@example.org"]},"Content":{"Simple":{"Subject":{"Data":"s"},"Body":{"Text":{"Data":"t"}},"Headers":[{"Name":"X-A","Value":"b"}]}},"EmailTags":[{"Name":"deed_id","Value":"1"}]}`,
		nil, signed("AKIA", "secret", time.Now()),
	}
	fake := &catcher.SES{Mailbox: box, AccessKeyID: "AKIA", SecretAccessKey: "secret", Region: "eu-central-1"}
	for what, sign := range map[string]func(*http.Request, string){
		"MissingAuthenticationTokenException": nil, "UnrecognizedClientException": signed("AKIB", "secret", time.Now()), "InvalidSignatureException": signed("AKIA", "another", time.Now()),
	} {
		bad := good
		bad.sign = sign
		r := httptest.NewRequest(bad.method, bad.path, strings.NewReader(bad.body))
		r.Header.Set("Content-Type", bad.contentType)
		if sign != nil {
			sign(r, bad.body)
		}
		w := httptest.NewRecorder()
		if fake.ServeHTTP(w, r); w.Code != 403 || !strings.Contains(w.Header().Get("X-Amzn-Errortype"), what) {
			t.Errorf("%s: %d %v", what, w.Code, w.Header())
		}
	}
	refuses(t, fake, box, good, []change{
		{what: "content type", header: "Content-Type", new: "text/plain", status: 400, says: "BadRequestException"},
		{what: "unknown field", old: `"EmailTags"`, new: `"Surprise":1,"EmailTags"`, status: 400, says: "BadRequestException"},
		{what: "nobody", old: `["b@example.org"]`, new: `[]`, status: 400, says: "no recipients"},
		{what: "51 recipients", old: `"b@example.org"`, new: `"b@example.org"` + many(50, `,"b@example.org"`), status: 400, says: "over 50"},
		{what: "no address", old: "b@example.org", new: "nobody", status: 400, says: "address"},
		{what: "no subject", old: `"Data":"s"`, new: `"Data":""`, status: 400, says: "subject"},
		{what: "no body", old: `"Text":{"Data":"t"}`, new: "", status: 400, says: "body"},
		{what: "a tag", old: `"Value":"1"`, new: `"Value":"a b"`, status: 400, says: "tag"},
		{what: "a header", old: `"Value":"b"`, new: `"Value":"` + many(871, "b") + `"`, status: 400, says: "header"},
		{what: "another path", path: "/v2/email", status: 404, says: "UnknownOperationException"},
	})
}

func TestTwilio_IsStrict(t *testing.T) {
	t.Parallel()
	const base = "/2010-04-01/Accounts/AC00000000000000000000000000000000/"
	auth := map[string]string{"Authorization": "Basic dTpw"} // u:p
	sms := request{"POST", base + "Messages.json", "application/x-www-form-urlencoded", "To=%2B15005550007&From=%2B15005550006&Body=x&StatusCallback=https%3A%2F%2Fexample.com%2F", auth, nil}
	box := &catcher.Mailbox{}
	refuses(t, &catcher.Twilio{Mailbox: box, User: "u", Secret: "p"}, box, sms, []change{
		{what: "nobody", header: "Authorization", new: "", status: 401, says: "20003"},
		{what: "another secret", header: "Authorization", new: "Basic dTpx", status: 401, says: "20003"},
		{what: "JSON", header: "Content-Type", new: "application/json", status: 400, says: "20001"},
		{what: "an unknown parameter", old: "Body=x", new: "Body=x&Surprise=1", status: 400, says: "20001"},
		{what: "twice", old: "Body=x", new: "Body=x&Body=y", status: 400, says: "20001"},
		{what: "no number", old: "15005550007", new: "0", status: 400, says: "21211"},
		{what: "no sender", old: "&From=%2B15005550006", new: "", status: 400, says: "21603"},
		{what: "a sender that is none", old: "%2B15005550006", new: "a+name+of+many+letters", status: 400, says: "21212"},
		{what: "no text", old: "Body=x", new: "Body=", status: 400, says: "21602"},
		{what: "a long text", old: "Body=x", new: "Body=" + many(1601, "x"), status: 400, says: "21617"},
		{what: "a callback", old: "example.com", new: "exa_mple.com", status: 400, says: "21609"},
		{what: "a call's parameter", old: "Body=x", new: "Body=x&Timeout=1", status: 400, says: "20001"},
		{what: "another path", path: base + "Faxes.json", status: 404, says: "20404"},
		{what: "a method", method: "PUT", status: 405, says: "20004"},
	})
	box = &catcher.Mailbox{}
	call := request{"POST", base + "Calls.json", "application/x-www-form-urlencoded", "To=%2B15005550007&From=%2B15005550006&Twiml=x&Timeout=30&MachineDetection=Enable", auth, nil}
	refuses(t, &catcher.Twilio{Mailbox: box}, box, call, []change{
		{what: "from no number", old: "%2B15005550006", new: "Shop", status: 400, says: "21212"},
		{what: "nothing to say", old: "&Twiml=x", new: "", status: 400, says: "21205"},
		{what: "two things to say", old: "Twiml=x", new: "Twiml=x&Url=https%3A%2F%2Fexample.com", status: 400, says: "21205"},
		{what: "a long Twiml", old: "Twiml=x", new: "Twiml=" + many(4001, "x"), status: 400, says: "20001"},
		{what: "a long ring", old: "Timeout=30", new: "Timeout=601", status: 400, says: "20001"},
		{what: "a detection", old: "=Enable", new: "=Sometimes", status: 400, says: "20001"},
		{what: "a message's parameter", old: "Twiml=x", new: "Twiml=x&Body=y", status: 400, says: "20001"},
	})
}

func TestWhatsApp_IsStrict(t *testing.T) {
	t.Parallel()
	auth := map[string]string{"Authorization": "Bearer x"}
	text := request{"POST", "/v23.0/1/messages", "application/json", `{"messaging_product":"whatsapp","recipient_type":"individual","to":"15005550006","type":"text","text":{"body":"x"},"biz_opaque_callback_data":"1"}`, auth, nil}
	box := &catcher.Mailbox{}
	refuses(t, &catcher.WhatsApp{Mailbox: box, Token: "x"}, box, text, []change{
		{what: "no token", header: "Authorization", new: "", status: 401, says: `"code":190`},
		{what: "another token", header: "Authorization", new: "Bearer y", status: 401, says: `"code":190`},
		{what: "content type", header: "Content-Type", new: "text/plain", status: 400, says: `"code":100`},
		{what: "an unknown parameter", old: `"type"`, new: `"surprise":1,"type"`, status: 400, says: `"code":100`},
		{what: "no product", old: `"whatsapp"`, new: `"sms"`, status: 400, says: `"code":131008`},
		{what: "nobody", old: `"to":"15005550006"`, new: `"to":""`, status: 400, says: `"code":131008`},
		{what: "two", old: `"to":`, new: `"recipient":"US.1","to":`, status: 400, says: `"code":131008`},
		{what: "no text", old: `"body":"x"`, new: `"body":""`, status: 400, says: `"code":131009`},
		{what: "a long text", old: `"body":"x"`, new: `"body":"` + many(4097, "x") + `"`, status: 400, says: `"code":131009`},
		{what: "a long marker", old: `data":"1"`, new: `data":"` + many(513, "1") + `"`, status: 400, says: `"code":131009`},
		{what: "another path", path: "/v23.0/1/media", status: 400, says: `"code":100`},
	})
	box = &catcher.Mailbox{}
	text.body = `{"messaging_product":"whatsapp","recipient_type":"individual","to":"15005550006","type":"template","template":{"name":"a","language":{"code":"en"}}}`
	refuses(t, &catcher.WhatsApp{Mailbox: box}, box, text, []change{
		{what: "no template's name", old: `"name":"a",`, new: "", status: 400, says: `"code":131008`},
		{what: "no language", old: `"code":"en"`, new: "", status: 400, says: `"code":131008`},
		{what: "no such template", old: `"name":"a"`, new: `"name":"unknown_template"`, status: 404, says: `"code":132001`},
	})
}

func TestSlack_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	good := request{"POST", "/chat.postMessage", "application/json; charset=utf-8", `{"channel":"C1","text":"x","metadata":{"event_type":"deed","event_payload":{"id":"1"}}}`, map[string]string{"Authorization": "Bearer xoxb-x"}, nil}
	refuses(t, &catcher.Slack{Mailbox: box, Token: "xoxb-x"}, box, good, []change{
		{what: "no token", header: "Authorization", new: "", status: 200, says: "not_authed"},
		{what: "another token", header: "Authorization", new: "Bearer xoxb-y", status: 200, says: "invalid_auth"},
		{what: "content type", header: "Content-Type", new: "text/plain", status: 200, says: "invalid_post_type"},
		{what: "an unknown field", old: `"text"`, new: `"surprise":1,"text"`, status: 200, says: "invalid_json"},
		{what: "no channel", old: `"channel":"C1",`, new: "", status: 200, says: "channel_not_found"},
		{what: "no text", old: `"text":"x",`, new: "", status: 200, says: "no_text"},
		{what: "a long text", old: `"text":"x"`, new: `"text":"` + many(40001, "x") + `"`, status: 200, says: "msg_too_long"},
		{what: "metadata", old: `"event_type":"deed",`, new: "", status: 200, says: "invalid_metadata_format"},
		{what: "a method", path: "/chat.meMessage", status: 200, says: "unknown_method"},
	})
}

func TestTelegram_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	good := request{"POST", "/bot1:x/sendMessage", "application/json", `{"chat_id":42,"text":"x"}`, nil, nil}
	refuses(t, &catcher.Telegram{Mailbox: box, Token: "1:x"}, box, good, []change{
		{what: "another token", path: "/bot1:y/sendMessage", status: 401, says: "Unauthorized"},
		{what: "another method", path: "/bot1:x/sendFax", status: 404, says: "Not Found"},
		{what: "content type", header: "Content-Type", new: "text/plain", status: 400, says: "text is empty"},
		{what: "an unknown field", old: `"text"`, new: `"surprise":1,"text"`, status: 400, says: "can't parse"},
		{what: "no chat", old: "42", new: `"ann"`, status: 400, says: "chat not found"},
		{what: "no text", old: `"x"`, new: `" "`, status: 400, says: "text is empty"},
		{what: "a long text", old: `"x"`, new: `"` + many(4097, "x") + `"`, status: 400, says: "too long"},
		{what: "HTML that is none", old: `"x"`, new: `"<b","parse_mode":"HTML"`, status: 400, says: "parse entities"},
		{what: "another mode", old: `"x"`, new: `"x","parse_mode":"RTF"`, status: 400, says: "parse_mode"},
	})
}

func TestMastodon_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	good := request{"POST", "/api/v1/statuses", "application/json", `{"status":"x","visibility":"public"}`, map[string]string{"Authorization": "Bearer x"}, nil}
	refuses(t, &catcher.Mastodon{Mailbox: box, Tokens: map[string]string{"x": "dev"}}, box, good, []change{
		{what: "no token", header: "Authorization", new: "", status: 401, says: "token is invalid"},
		{what: "another token", header: "Authorization", new: "Bearer y", status: 401, says: "token is invalid"},
		{what: "content type", header: "Content-Type", new: "text/plain", status: 422, says: "cannot be read"},
		{what: "an unknown parameter", old: `"status"`, new: `"surprise":1,"status"`, status: 422, says: "cannot be read"},
		{what: "no text", old: `"x"`, new: `" "`, status: 422, says: "blank"},
		{what: "a long text", old: `"x"`, new: `"` + many(501, "x") + `"`, status: 422, says: "500 exceeded"},
		{what: "a visibility", old: "public", new: "secret", status: 422, says: "Visibility"},
		{what: "another path", path: "/api/v1/toots", status: 404, says: "not found"},
	})
}

func TestBluesky_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	fake := &catcher.Bluesky{Mailbox: box, Passwords: map[string]string{"dev.test": "x"}}
	session := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		fake.ServeHTTP(w, httptest.NewRequest("POST", "/xrpc/com.atproto.server.createSession", strings.NewReader(body)))
		return w
	}
	if w := session(`{"identifier":"dev.test","password":"y"}`); w.Code != 401 {
		t.Errorf("another password: %d", w.Code)
	}
	_, token, _ := strings.Cut(session(`{"identifier":"dev.test","password":"x"}`).Body.String(), `"accessJwt":"`)
	token, _, _ = strings.Cut(token, `"`)
	good := request{
		"POST", "/xrpc/com.atproto.repo.createRecord", "application/json",
		`{"repo":"dev.test","collection":"app.bsky.feed.post","rkey":"3jzfcijpj2z2a","record":{"$type":"app.bsky.feed.post","text":"x","createdAt":"2026-02-22T23:41:12Z","langs":["en"]}}`,
		map[string]string{"Authorization": "Bearer " + token},
		nil,
	}
	refuses(t, fake, box, good, []change{
		{what: "no token", header: "Authorization", new: "", status: 400, says: "AuthMissing"},
		{what: "another token", header: "Authorization", new: "Bearer y", status: 400, says: "InvalidToken"},
		{what: "content type", header: "Content-Type", new: "text/plain", status: 400, says: "InvalidRequest"},
		{what: "an unknown field", old: `"text"`, new: `"surprise":1,"text"`, status: 400, says: "InvalidRequest"},
		{what: "another's repository", old: "dev.test", new: "ann.test", status: 401, says: "AuthenticationRequired"},
		{what: "no TID", old: "3jzfcijpj2z2a", new: "1", status: 400, says: "InvalidRequest"},
		{what: "another collection", old: "app.bsky.feed.post", new: "app.bsky.feed.like", status: 400, says: "InvalidRequest"},
		{what: "301 characters", old: `"x"`, new: `"` + many(301, "x") + `"`, status: 400, says: "InvalidRequest"},
		{what: "no time", old: "2026-02-22T23:41:12Z", new: "today", status: 400, says: "InvalidRequest"},
		{what: "four languages", old: `["en"]`, new: `["en","de","fr","it"]`, status: 400, says: "InvalidRequest"},
		{what: "another method", path: "/xrpc/com.atproto.repo.applyWrites", status: 501, says: "MethodNotImplemented"},
	})
}
