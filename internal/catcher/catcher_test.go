package catcher_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/catcher"
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
