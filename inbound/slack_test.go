package inbound_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/inbound"
)

func slackSource(t *testing.T) inbound.Source {
	return opened(t)(inbound.Slack(inbound.SlackOptions{Secrets: []string{platformSecret}}))
}

// The vector is Slack's own, of a slash command: it is verified, and no event.
func TestSlack_Vector(t *testing.T) {
	t.Parallel()
	const (
		secret = "8f742231b10e8888abcd99yyyzzz85a5"
		body   = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	)
	s := opened(t)(inbound.Slack(inbound.SlackOptions{Secrets: []string{secret}}))
	h := http.Header{"X-Slack-Request-Timestamp": {"1531420618"}, "X-Slack-Signature": {"v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"}}
	at := time.Unix(1531420618, 0)
	refused(t, s, sent(h, body), body, at, inbound.ErrInvalid)
	refused(t, s, sent(h, body), body+"&", at, inbound.ErrUnverified)
	refused(t, s, sent(h, body), body, at.Add(301*time.Second), inbound.ErrUnverified)
	refused(t, slackSource(t), sent(h, body), body, at, inbound.ErrUnverified)
}

func TestSlack_TheChallengeIsAnsweredOnceItIsVerified(t *testing.T) {
	t.Parallel()
	s := slackSource(t)
	const body = `{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALMWmHkvFXO7tYXAYM8P","type":"url_verification"}`
	same(t, "the answer", taken(t, s, signSlack(platformSecret, body, signedAt), body), inbound.Received{Answer: &inbound.Answer{
		Status: 200, ContentType: "text/plain; charset=utf-8", Body: []byte("3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALMWmHkvFXO7tYXAYM8P"),
	}})
	refused(t, s, sent(signSlack(anotherSecret, body, signedAt), body), body, signedAt, inbound.ErrUnverified)
	refused(t, s, sent(http.Header{}, body), body, signedAt, inbound.ErrUnverified)
	refused(t, s, sent(signSlack(platformSecret, body, signedAt), body), body, signedAt.Add(time.Hour), inbound.ErrUnverified)
	for _, bad := range []string{`""`, `1`, `null`, `"a b"`, `"a\nb"`, `"ü"`, `["a"]`, `"` + strings.Repeat("x", 256) + `"`} {
		body := `{"type":"url_verification","challenge":` + bad + `}`
		refused(t, s, sent(signSlack(platformSecret, body, signedAt), body), body, signedAt, inbound.ErrInvalid)
	}
}

func slackBody(event string) string {
	return `{"type":"event_callback","team_id":"T1","event_id":"Ev1","authorizations":[{"user_id":"U0","is_bot":true},{"user_id":"U1","is_bot":false}],"event":{` + event + `}}`
}

func TestSlack_WhatIsAnEvent(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]inbound.Event{
		`"type":"message","user":"U1","channel":"C1","text":"hello"`:                                                   {Sender: "T1:U1", ReplyTo: "C1", Text: "hello"},
		`"type":"app_mention","user":"W1","channel":"C1","text":"<@U0> hello"`:                                         {Sender: "T1:W1", ReplyTo: "C1", Text: "<@U0> hello"},
		`"type":"message","user":"U1","channel":"D1","text":"","subtype":"file_share","files":[]`:                      {Sender: "T1:U1", ReplyTo: "D1"},
		`"type":"message","user":"U1","channel":"C1","text":"hello","thread_ts":"1503435956.000247"`:                   {Sender: "T1:U1", ReplyTo: "C1/1503435956.000247", Text: "hello"},
		`"type":"message","user":"U1","channel":"C1","text":"hello","user_team":"T2","source_team":"T2","bot_id":null`: {Sender: "T2:U1", ReplyTo: "C1", Text: "hello"},
	} {
		body := slackBody(event)
		want.ID, want.Kind, want.Body = "Ev1", "slack", json.RawMessage(body)
		same(t, event, taken(t, slackSource(t), signSlack(platformSecret, body, signedAt), body), inbound.Received{Events: []inbound.Event{want}})
	}
}

func TestSlack_WhatIsSentAgainIsARepeat(t *testing.T) {
	t.Parallel()
	s, body := slackSource(t), slackBody(`"type":"message","user":"U1","channel":"C1","text":"hello"`)
	first := taken(t, s, signSlack(platformSecret, body, signedAt), body)
	h := signSlack(platformSecret, body, signedAt.Add(time.Minute))
	h.Set("X-Slack-Retry-Num", "1")
	h.Set("X-Slack-Retry-Reason", "http_timeout")
	same(t, "the retry", taken(t, s, h, body), first)
}

func TestSlack_WhatIsIgnored(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]string{
		`"type":"message","user":"U0","channel":"C1","text":"our own"`:                                       "bot",
		`"type":"message","user":"U5","bot_id":"B1","channel":"C1","text":"hello"`:                           "bot",
		`"type":"app_mention","user":"U5","bot_id":"B1","channel":"C1","text":"hello"`:                       "bot",
		`"type":"message","subtype":"bot_message","bot_id":"B1","channel":"C1","text":"hello"`:               "bot",
		`"type":"message","user":"USLACKBOT","channel":"D1","text":"hello"`:                                  "bot",
		`"type":"message","subtype":"message_changed","channel":"C1","message":{"user":"U1","text":"hello"}`: "edited",
		`"type":"message","subtype":"message_deleted","channel":"C1","deleted_ts":"1"`:                       "deleted",
		`"type":"message","subtype":"channel_join","user":"U1","channel":"C1","text":"hello"`:                "membership",
		`"type":"message","subtype":"a_subtype_of_tomorrow","user":"U1","channel":"C1","text":"hello"`:       "other",
		`"type":"reaction_added","user":"U1","reaction":"+1"`:                                                "reaction",
		`"type":"member_joined_channel","user":"U1","channel":"C1"`:                                          "membership",
		`"type":"team_join"`: "other",
	} {
		body := slackBody(event)
		same(t, event, taken(t, slackSource(t), signSlack(platformSecret, body, signedAt), body), inbound.Received{Ignored: map[string]int{want: 1}})
	}
	const limited = `{"type":"app_rate_limited","team_id":"T1","minute_rate_limited":1518467820,"api_app_id":"A1"}`
	same(t, limited, taken(t, slackSource(t), signSlack(platformSecret, limited, signedAt), limited), inbound.Received{Ignored: map[string]int{"other": 1}})
}

func TestSlack_WhatIsNoEvent(t *testing.T) {
	t.Parallel()
	const right = `"type":"message","user":"U1","channel":"C1","text":"hello"`
	refused(t, slackSource(t), sent(signSlack(platformSecret, `{"type":7}`, signedAt), `{"type":7}`), `{"type":7}`, signedAt, inbound.ErrInvalid)
	for _, body := range []string{
		`{"type":"event_callback"}`, `{"type":"event_callback","event":[]}`, slackBody(""),
		slackBody(`"type":"message","channel":"C1","text":"nobody"`), slackBody(`"type":"message","user":"U1","text":"nowhere"`),
		slackBody(`"type":"message","user":"U1:T2","channel":"C1"`), slackBody(`"type":"message","user":"U1","channel":"C1/1"`), slackBody(`"type":"message","user":"U1","channel":"C1","user_team":"T1:U2"`),
		slackBody(right + `,"thread_ts":"x"`), slackBody(right + `,"thread_ts":"1/2"`), slackBody(right + `,"thread_ts":"1.2.3"`),
		strings.Replace(slackBody(right), `"Ev1"`, `""`, 1), strings.Replace(slackBody(right), `"Ev1"`, `7`, 1), strings.Replace(slackBody(right), `"Ev1"`, `"a\nb"`, 1),
		strings.Replace(slackBody(right), `"Ev1"`, `"`+strings.Repeat("x", 256)+`"`, 1), strings.Replace(slackBody(right), `"T1"`, `null`, 1),
	} {
		same(t, body, taken(t, slackSource(t), signSlack(platformSecret, body, signedAt), body), inbound.Received{Unreadable: 1})
	}
}
