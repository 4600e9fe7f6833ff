package twilio

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/httpcall"
)

// Twilio's answers, each for what it is; of what it says nothing is repeated, which may
// name the recipient.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status           int
		body, want, says string
	}{
		{201, `{"sid":"SM0123456789abcdef0123456789abcdef","status":"queued","code":null}`, "accepted", ""},
		{201, `{"sid":"canary"}`, "unknown", "status 201 without a sid"},
		{200, `<html>canary</html>`, "unknown", "status 200 without a sid"},
		{307, ``, "refused", "status 307"},
		{400, `{"code":21211,"message":"canary +15558675310"}`, "bad address", "code 21211: the recipient is no valid number"},
		{400, `{"code":21614,"message":"canary +15558675310"}`, "bad address", "code 21614"},
		{400, `{"code":21610,"message":"canary +15558675310","status":400}`, "opted out", "status 400, code 21610: the recipient has opted out"},
		{400, `{"code":99999,"message":"canary"}`, "refused", "status 400, code 99999"},
		{404, `<html>canary</html>`, "refused", "status 404"},
		{400, `{"code":21611,"message":"canary"}`, "outage", "code 21611: the queue of From is full"},
		{429, `{"code":20429,"message":"canary"}`, "outage", "code 20429: too many requests"},
		{429, `canary`, "outage", "status 429"},
		{401, `canary`, "outage", "status 401"},
		{403, `{"code":20003,"message":"canary"}`, "outage", "code 20003: the credentials are refused"},
		{403, `canary`, "outage", "status 403"},
		{403, `{"code":403,"message":"canary"}`, "outage", "status 403, code 403"},
		{403, `{"code":20005,"message":"canary"}`, "outage", "code 20005: the account is not active"},
		{403, `{"code":20403,"message":"canary"}`, "outage", "code 20403: the account is suspended or closed"},
		{403, `{"code":70051,"message":"canary"}`, "outage", "code 70051: the account or the API key may not do that"},
		{403, `{"code":21408,"message":"canary"}`, "refused", "code 21408: messages to that region are not enabled"},
		{403, `{"code":13227,"message":"canary"}`, "refused", "status 403, code 13227"},
		{403, `{"code":63007,"message":"canary"}`, "refused", "status 403, code 63007"},
		{403, `{"code":21610,"message":"canary +15558675310"}`, "opted out", "code 21610"},
		{400, `{"code":10001,"message":"canary"}`, "outage", "code 10001: the account is not active"},
		{429, `{"code":63038,"message":"canary"}`, "outage", "code 63038: the account's messages of the day are spent"},
		{408, `{"message":"canary"}`, "unknown", "status 408"},
		{500, `{"code":20500,"message":"canary"}`, "unknown", "code 20500: it may have been done all the same"},
		{503, `{"code":21211,"status":503}`, "unknown", "status 503, code 21211"},
	} {
		h := http.Header{"Retry-After": {"7"}}
		out := judge(httpcall.Answer{Status: c.status, Header: h, Body: []byte(c.body)})
		if out.String() != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.body, out, c.want)
		}
		if c.want == "accepted" {
			if out.MessageID() != "SM0123456789abcdef0123456789abcdef" {
				t.Errorf("message id %q", out.MessageID())
			}
			continue
		}
		if text := out.Err().Error(); !strings.Contains(text, c.says) || strings.Contains(text, "canary") || strings.Contains(text, "15558675310") {
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
	for connected, want := range map[bool]string{true: "unknown", false: "outage"} {
		if out := judge(httpcall.Answer{Err: errors.New("cut"), Connected: connected}); out.String() != want {
			t.Errorf("connected %t: %s, want %s", connected, out, want)
		}
	}
}
