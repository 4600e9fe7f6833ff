package ses

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/httpcall"
)

// SES's answers, each for what it is, wherever the name of an error stands; of what it
// says nothing is repeated, which may name the recipient.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status                 int
		header, body           string
		want, says, id, orCode string
	}{
		{200, "", `{"MessageId":"010f0181-4a"}`, "accepted", "", "010f0181-4a", "200"},
		{200, "", `{"MessageId":""}`, "unknown", "status 200 without a MessageId", "", "200"},
		{200, "", `<html>canary</html>`, "unknown", "status 200 without a MessageId", "", "200"},
		{307, "", ``, "refused", "status 307 without a name", "", "307"},
		{400, "MessageRejected:http://internal.amazon.com/canary", `{"message":"canary is not verified"}`, "refused", "status 400 MessageRejected", "", "MessageRejected"},
		{400, "MailFromDomainNotVerifiedException", `{}`, "refused", "MailFromDomainNotVerifiedException", "", "MailFromDomainNotVerifiedException"},
		{400, "", `{"__type":"com.amazonaws.ses#BadRequestException","message":"canary"}`, "refused", "status 400 BadRequestException", "", "BadRequestException"},
		{404, "", `{"code":"NotFoundException"}`, "refused", "status 404 NotFoundException", "", "NotFoundException"},
		{400, "", `{"__type":"canary in words"}`, "refused", "status 400 without a name", "", "400"},
		{429, "TooManyRequestsException", `{"message":"Maximum sending rate exceeded."}`, "outage", "TooManyRequestsException", "", "TooManyRequestsException"},
		{400, "", `{"__type":"ThrottlingException"}`, "outage", "ThrottlingException", "", "ThrottlingException"},
		{429, "", `canary`, "outage", "status 429 without a name", "", "429"},
		{429, "TooManyRequestsException", `{"message":"Daily message quota exceeded."}`, "outage", "the account's quota is spent", "", "TooManyRequestsException"},
		{400, "LimitExceededException", `{}`, "outage", "LimitExceededException", "", "LimitExceededException"},
		{400, "AccountSuspendedException", `{}`, "outage", "AccountSuspendedException", "", "AccountSuspendedException"},
		{400, "SendingPausedException", `{}`, "outage", "SendingPausedException", "", "SendingPausedException"},
		{403, "InvalidSignatureException", `{"message":"Signature expired: canary"}`, "outage", "status 403 InvalidSignatureException", "", "InvalidSignatureException"},
		{400, "IncompleteSignature", `{}`, "outage", "IncompleteSignature", "", "IncompleteSignature"},
		{403, "", `canary`, "outage", "status 403 without a name", "", "403"},
		{401, "", ``, "outage", "status 401 without a name", "", "401"},
		{408, "", ``, "unknown", "status 408", "", "408"},
		{500, "InternalServiceErrorException", ``, "unknown", "status 500 InternalServiceErrorException", "", "InternalServiceErrorException"},
		{503, "ThrottlingException", ``, "unknown", "status 503 ThrottlingException", "", "ThrottlingException"},
	} {
		h := http.Header{"Retry-After": {"7"}}
		if c.header != "" {
			h.Set("x-amzn-ErrorType", c.header)
		}
		out := judge(httpcall.Answer{Status: c.status, Header: h, Body: []byte(c.body)})
		if out.String() != c.want || out.MessageID() != c.id || out.Code() != c.orCode {
			t.Errorf("%d %s %s: %s %q %q, want %s", c.status, c.header, c.body, out, out.MessageID(), out.Code(), c.want)
		}
		if c.want == "accepted" {
			continue
		}
		if text := out.Err().Error(); !strings.Contains(text, c.says) || strings.Contains(text, "canary") {
			t.Errorf("%d %s %s: %q", c.status, c.header, c.body, text)
		}
		spent := strings.Contains(c.says, "quota is spent")
		if spent != (out.Renewal() == delivery.RenewedIn(time.Hour)) || (c.want == "outage" && !spent) != (out.RetryAfter() == 7*time.Second) {
			t.Errorf("%d %s: after %s, %v", c.status, c.header, out.RetryAfter(), out.Renewal())
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

// A region has its host in the part of AWS that it is of.
func TestHost(t *testing.T) {
	t.Parallel()
	for region, want := range map[string]string{
		"eu-central-1": "https://email.eu-central-1.amazonaws.com", "us-gov-west-1": "https://email.us-gov-west-1.amazonaws.com",
		"cn-north-1": "https://email.cn-north-1.amazonaws.com.cn", "eusc-de-east-1": "https://email.eusc-de-east-1.amazonaws.eu",
	} {
		if got := host(region); got != want {
			t.Errorf("%s: %s, want %s", region, got, want)
		}
		if _, err := New(Options{Region: region, AccessKeyID: "a", SecretAccessKey: "b"}); err != nil {
			t.Error(err)
		}
	}
}
