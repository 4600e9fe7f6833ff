package slack

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/httpcall"
)

// Slack's errors, by whom they are about: the token, the conversation that is posted to, which holds
// up no other, or the message alone.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		want   string
		ofLane bool
	}{
		{200, `{"ok":false,"error":"invalid_auth"}`, "outage", false},
		{200, `{"ok":false,"error":"missing_scope"}`, "outage", false},
		{200, `{"ok":false,"error":"ekm_access_denied"}`, "outage", false},
		{200, `{"ok":false,"error":"team_added_to_org"}`, "outage", false},
		{401, `canary`, "outage", false},
		{200, `{"ok":false,"error":"no_permission"}`, "outage", true},
		{200, `{"ok":false,"error":"access_denied"}`, "outage", true},
		{200, `{"ok":false,"error":"ratelimited"}`, "outage", true},
		{429, `canary`, "outage", true},
		{200, `{"ok":false,"error":"not_in_channel"}`, "refused", false},
		{200, `{"ok":false,"error":"internal_error"}`, "unknown", false},
		{503, `canary`, "unknown", false},
	} {
		out := judge(httpcall.Answer{Status: c.status, Header: http.Header{"Retry-After": {"7"}}, Body: []byte(c.body)})
		if out.String() != c.want || out.OfLane() != c.ofLane || strings.Contains(out.Err().Error(), "canary") {
			t.Errorf("%d %s: %s of the lane %t: %v", c.status, c.body, out, out.OfLane(), out.Err())
		}
		if c.want == "outage" && out.RetryAfter() != 7*time.Second {
			t.Errorf("%d %s: after %s", c.status, c.body, out.RetryAfter())
		}
	}
	if out := judge(httpcall.Answer{Err: errors.New("cut")}); out.String() != "outage" || out.OfLane() {
		t.Error(out)
	}
}
