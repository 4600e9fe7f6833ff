package postmark

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/httpcall"
)

// Postmark's answers, each for what it is; of what it says nothing is repeated, which may
// name the recipient.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status           int
		body, want, says string
	}{
		{200, `{"To":"x","MessageID":"m-1","ErrorCode":0,"Message":"OK"}`, "accepted", ""},
		{200, `{"MessageID":"m-1","Message":"canary"}`, "unknown", "status 200 without a message's id"},
		{200, `{"MessageID":"","ErrorCode":0,"Message":"canary"}`, "unknown", "status 200 without a message's id"},
		{200, `{"ErrorCode":300,"Message":"canary","MessageID":"x"}`, "refused", "status 200, code 300: a field of the e-mail is not valid"},
		{422, `{"ErrorCode":406,"Message":"canary bob@example.org"}`, "refused", "code 406: the recipient is inactive"},
		{422, `{"ErrorCode":9999,"Message":"canary"}`, "refused", "status 422, code 9999"},
		{404, `<html>canary</html>`, "refused", "status 404"},
		{307, ``, "refused", "status 307"},
		{401, `canary`, "outage", "status 401"},
		{422, `{"ErrorCode":10,"Message":"canary"}`, "outage", "code 10: the token is not a server's"},
		{422, `{"ErrorCode":405,"Message":"canary"}`, "outage", "code 405: the account may not send"},
		{422, `{"ErrorCode":412,"Message":"canary"}`, "outage", "code 412: the account is not approved yet"},
		{422, `{"ErrorCode":429,"Message":"canary"}`, "outage", "code 429: too many calls"},
		{429, `canary`, "outage", "status 429"},
		{408, `canary`, "unknown", "status 408"},
		{500, `{"ErrorCode":406,"Message":"canary"}`, "unknown", "status 500, code 406"},
	} {
		out := judge(httpcall.Answer{Status: c.status, Header: http.Header{"Retry-After": {"7"}}, Body: []byte(c.body)})
		if out.String() != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.body, out, c.want)
		}
		if c.want == "accepted" {
			if out.MessageID() != "m-1" {
				t.Errorf("message id %q", out.MessageID())
			}
			continue
		}
		if text := out.Err().Error(); !strings.Contains(text, c.says) || strings.Contains(text, "canary") || strings.Contains(text, "bob@") {
			t.Errorf("%d %s: %q", c.status, c.body, text)
		}
		if waits := c.want == "outage"; waits != (out.RetryAfter() == 7*time.Second) {
			t.Errorf("%d %s: after %s", c.status, c.body, out.RetryAfter())
		}
	}
}

// An answer that did not come is unknown, unless nobody was asked.
func TestJudge_NoAnswer(t *testing.T) {
	t.Parallel()
	cut := errors.New("cut")
	if out := judge(httpcall.Answer{Err: cut, Connected: true}); out.String() != "unknown" {
		t.Error(out)
	}
	if out := judge(httpcall.Answer{Err: cut}); out.String() != "outage" {
		t.Error(out)
	}
}
