package catcher_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
)

// The fake Resend refuses what the documentation says is refused, and takes
// nothing of it.
func TestResend_IsStrict(t *testing.T) {
	t.Parallel()
	box := &catcher.Mailbox{}
	fake := &catcher.Resend{Mailbox: box, APIKey: "re_x"}
	const good = `{"from":"a@example.com","to":["b@example.org"],"subject":"s","text":"t"}`
	post := func(path, key, contentType, idempotency, body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Idempotency-Key", idempotency)
		w := httptest.NewRecorder()
		fake.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	many := `"b@example.org"` + strings.Repeat(`,"b@example.org"`, 50)
	for name, c := range map[string]struct {
		path, key, contentType, idempotency, body, want string
		status                                          int
	}{
		"no key":        {"/emails", "", "application/json", "", good, "missing_api_key", 401},
		"wrong key":     {"/emails", "re_y", "application/json", "", good, "invalid_api_key", 403},
		"content type":  {"/emails", "re_x", "text/plain", "", good, "Content-Type", 422},
		"not JSON":      {"/emails", "re_x", "application/json", "", `{`, "not valid", 422},
		"unknown field": {"/emails", "re_x", "application/json", "", strings.Replace(good, "{", `{"surprise":1,`, 1), "surprise", 422},
		"no subject":    {"/emails", "re_x", "application/json", "", strings.Replace(good, `"subject":"s",`, "", 1), "required field", 422},
		"no content":    {"/emails", "re_x", "application/json", "", strings.Replace(good, `,"text":"t"`, "", 1), "`html` or `text`", 422},
		"51 recipients": {"/emails", "re_x", "application/json", "", strings.Replace(good, `"b@example.org"`, many, 1), "at most 50", 422},
		"bad address":   {"/emails", "re_x", "application/json", "", strings.Replace(good, "a@example.com", "nobody", 1), "Invalid address", 422},
		"bad tag":       {"/emails", "re_x", "application/json", "", strings.Replace(good, "{", `{"tags":[{"name":"a b","value":"c"}],`, 1), "Tags", 422},
		"long key":      {"/emails", "re_x", "application/json", strings.Repeat("k", 257), good, "invalid_idempotency_key", 400},
		"unknown path":  {"/email", "re_x", "application/json", "", good, "not_found", 404},
	} {
		if status, body := post(c.path, c.key, c.contentType, c.idempotency, c.body); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	if n := len(box.List()); n != 0 {
		t.Errorf("%d were accepted", n)
	}
	_, first := post("/emails", "re_x", "application/json", "k", good)
	if _, again := post("/emails", "re_x", "application/json", "k", good); again != first || len(box.List()) != 1 {
		t.Errorf("a repeat under the key: %s, then %s; %d accepted", first, again, len(box.List()))
	}
	if status, body := post("/emails", "re_x", "application/json", "k", strings.Replace(good, `"t"`, `"other"`, 1)); status != 409 || !strings.Contains(body, "invalid_idempotent_request") {
		t.Errorf("another request under the key: %d %s", status, body)
	}
}

// What becomes of a message is what its recipient's name says.
func TestEndOf(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]catcher.End{
		"ann@example.com": catcher.Delivered, "bounce@example.com": catcher.Bounced, "Zoe <Bounce+7@example.com>": catcher.Bounced, "bounced@example.com": catcher.Delivered,
		"soft@example.com": catcher.SoftBounced, "complaint@x": catcher.Complained, "unsubscribe@x": catcher.Unsubscribed, "silent@x": catcher.Silent, "delivered@x": catcher.Delivered,
		"+15005550101": catcher.Bounced, "15005550102": catcher.SoftBounced, "+15005550103": catcher.Complained, "+15005550104": catcher.Unsubscribed, "+15005550105": catcher.Silent, "+15005550100": catcher.Delivered,
	} {
		if got := catcher.EndOf(to); got != want {
			t.Errorf("%s: %s, want %s", to, got, want)
		}
	}
}

// Things are said in their order or the other way round, once or twice, before the answer
// or after it; what the other side cannot take now is said again, and nothing after Close.
func TestTeller_Orders(t *testing.T) {
	t.Parallel()
	for when, want := range map[catcher.When]string{
		"": "answer, email.sent, email.delivered", catcher.Early: "email.sent, email.delivered, answer",
		catcher.Twice: "answer, email.sent, email.delivered, email.sent, email.delivered", catcher.Reverse: "answer, email.delivered, email.sent",
	} {
		var mu sync.Mutex
		var heard []string
		ill := true
		ids := map[string]bool{}
		answered := make(chan struct{})
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if when != catcher.Early {
				<-answered
			}
			mu.Lock()
			defer mu.Unlock()
			if ill {
				ill = false
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			var e struct{ Type string }
			if err := json.NewDecoder(r.Body).Decode(&e); err != nil || r.URL.Path != "/events/resend" {
				t.Errorf("%s %v", r.URL.Path, err)
			}
			ids[r.Header.Get("Svix-Id")] = true
			heard = append(heard, e.Type)
		}))
		teller := &catcher.Teller{Base: func() string { return receiver.URL }, When: when, Delay: 5 * time.Millisecond}
		fake := &catcher.Resend{Mailbox: &catcher.Mailbox{}, EventSecret: "whsec_AAAA"}
		fake.Events = catcher.Events{Teller: teller, Path: "/events/resend"}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/emails", strings.NewReader(`{"from":"a@example.com","to":["b@example.org"],"subject":"s","text":"t"}`))
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("Content-Type", "application/json")
		fake.ServeHTTP(w, r)
		mu.Lock()
		heard = append(heard, "answer")
		mu.Unlock()
		close(answered)
		got := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(heard, ", ")
		}
		if !pgtest.Wait(pgtest.Patience, func() bool { return got() == want }) || len(ids) != 2 {
			t.Errorf("%q: %s, want %s; %d ids", when, got(), want, len(ids))
		}
		teller.Close()
		receiver.Close()
	}
}

// Twilio calls back once, unless the URL asks for more: so a receiver that is in trouble for a
// moment hears it only if whoever sends has asked.
func TestTwilio_CallsAgainAsItIsAsked(t *testing.T) {
	t.Parallel()
	for fragment, want := range map[string]int{"": 1, "#rc=5&rp=5xx,ct,rt": 3, "#rc=1&rp=all": 2, "#rc=5&rp=4xx": 1} {
		var calls atomic.Int32
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if calls.Add(1) < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		teller := &catcher.Teller{When: catcher.Early, Delay: time.Millisecond} // all is said before the answer
		fake := &catcher.Twilio{Mailbox: &catcher.Mailbox{}, EventToken: "x"}
		fake.Events = catcher.Events{Teller: teller}
		form := url.Values{"To": {"+15005550101"}, "From": {"+15005550006"}, "StatusCallback": {receiver.URL + "/?ob=1" + fragment}, "Twiml": {"<Response/>"}}
		r := httptest.NewRequest(http.MethodPost, "/2010-04-01/Accounts/AC00000000000000000000000000000000/Calls.json", strings.NewReader(form.Encode()))
		r.SetBasicAuth("AC00000000000000000000000000000000", "x")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		fake.ServeHTTP(w, r)
		if got := int(calls.Load()); got != want || w.Code != http.StatusCreated {
			t.Errorf("%q: called %d times, want %d; %d %s", fragment, got, want, w.Code, w.Body)
		}
		teller.Close()
		receiver.Close()
	}
}
