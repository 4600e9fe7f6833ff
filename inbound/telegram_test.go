package inbound_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/deedhq/deed/inbound"
)

func telegramSource(t *testing.T) (inbound.Source, http.Header) {
	s := opened(t)(inbound.Telegram(inbound.TelegramOptions{Secrets: []string{platformSecret}}))
	return s, http.Header{"X-Telegram-Bot-Api-Secret-Token": {platformSecret}}
}

func TestTelegram_WhatIsAnEvent(t *testing.T) {
	t.Parallel()
	const from, chat = `"from":{"id":42,"is_bot":false,"username":"ann"}`, `"chat":{"id":-1001,"type":"supergroup"}`
	for update, want := range map[string]inbound.Event{
		`"message":{` + from + `,` + chat + `,"text":"hello"}`:                                                        {ReplyTo: "-1001", Text: "hello"},
		`"message":{` + from + `,` + chat + `,"photo":[],"caption":"look"}`:                                           {ReplyTo: "-1001", Text: "look"},
		`"message":{` + from + `,` + chat + `,"voice":{}}`:                                                            {ReplyTo: "-1001"},
		`"message":{` + from + `,` + chat + `,"successful_payment":{}}`:                                               {ReplyTo: "-1001"},
		`"message":{` + from + `,` + chat + `,"text":"hello","message_thread_id":7,"is_topic_message":true}`:          {ReplyTo: "-1001/7", Text: "hello"},
		`"message":{` + from + `,` + chat + `,"text":"hello","message_thread_id":7}`:                                  {ReplyTo: "-1001", Text: "hello"},
		`"message":{` + from + `,"chat":{"id":42},"text":"\ud83d\ude00\\","entities":[],"sender_chat":null}`:          {ReplyTo: "42", Text: "😀\\"},
		`"callback_query":{"id":"9",` + from + `,"message":{"from":{"id":1,"is_bot":true},` + chat + `},"data":"ok"}`: {ReplyTo: "-1001", Text: "ok"},
		`"callback_query":{"id":"9",` + from + `,"inline_message_id":"x","data":"ok"}`:                                {ReplyTo: "42", Text: "ok"},
	} {
		s, h := telegramSource(t)
		body := `{"update_id" : 7 ,` + update + `}`
		want.ID, want.Sender, want.Kind, want.Body = "7", "42", "telegram", json.RawMessage(body)
		same(t, body, taken(t, s, h, body), inbound.Received{Events: []inbound.Event{want}})
	}
}

func TestTelegram_WhatIsIgnored(t *testing.T) {
	t.Parallel()
	const from, chat = `"from":{"id":42,"is_bot":false}`, `"chat":{"id":-1001}`
	for update, want := range map[string]string{
		`"message":{"from":{"id":1,"is_bot":true},` + chat + `,"text":"hello"}`:                                     "bot",
		`"message":{"from":{"id":1087968824,"is_bot":true},"sender_chat":{"id":-1001},` + chat + `,"text":"hello"}`: "bot",
		`"message":{"from":{"id":777000,"is_bot":false},"sender_chat":{"id":-1002},` + chat + `,"text":"hello"}`:    "channel",
		`"message":{` + chat + `,"text":"hello"}`:                                                                   "channel",
		`"message":{` + from + `,` + chat + `,"new_chat_members":[{"id":43}]}`:                                      "membership",
		`"message":{` + from + `,` + chat + `,"pinned_message":{"text":"hello"}}`:                                   "service",
		`"edited_message":{` + from + `,` + chat + `,"text":"hello"}`:                                               "edited",
		`"channel_post":{"sender_chat":{"id":-1001},` + chat + `,"text":"hello"}`:                                   "channel",
		`"edited_channel_post":{"sender_chat":{"id":-1001},` + chat + `,"text":"hello"}`:                            "edited",
		`"message_reaction":{"user":{"id":42},` + chat + `}`:                                                        "reaction",
		`"my_chat_member":{` + from + `,` + chat + `}`:                                                              "membership",
		`"inline_query":{` + from + `,"query":"hello"}`:                                                             "other",
		`"a_member_of_tomorrow":{}`:                                                                                 "other",
		`"Message":{` + from + `,` + chat + `,"text":"the name's case is another"}`:                                 "other",
		`"callback_query":{"from":{"id":1,"is_bot":true},"message":{` + chat + `},"data":"ok"}`:                     "bot",
	} {
		s, h := telegramSource(t)
		same(t, update, taken(t, s, h, `{"update_id":7,`+update+`}`), inbound.Received{Ignored: map[string]int{want: 1}})
	}
}

func TestTelegram_WhatIsNoUpdate(t *testing.T) {
	t.Parallel()
	const message = `"message":{"from":{"id":42},"chat":{"id":42},"text":"hello"}`
	for _, body := range []string{
		`{` + message + `}`, `{"update_id":"7",` + message + `}`, `{"update_id":7.0,` + message + `}`, `{"update_id":7e0,` + message + `}`, `{"update_id":-0,` + message + `}`,
		`{"update_id":null,` + message + `}`, `{"update_id":123456789012345678901,` + message + `}`, `{"Update_id":7,` + message + `}`,
	} {
		s, h := telegramSource(t)
		refused(t, s, sent(h, body), body, signedAt, inbound.ErrInvalid)
	}
	// An update that nothing can be made of does not stand before those that come after it.
	for _, body := range []string{
		`{"update_id":7,"message":[]}`, `{"update_id":7,"message":"hello"}`, `{"update_id":7,"message":{"from":[],"chat":{"id":42}}}`,
		`{"update_id":7,"message":{"from":{"id":"42"},"chat":{"id":42}}}`, `{"update_id":7,"message":{"from":{"id":42},"chat":{}}}`, `{"update_id":7,"message":{"from":{"id":42}}}`,
		`{"update_id":7,"callback_query":{}}`, `{"update_id":7,"callback_query":{"from":{"id":true}}}`, `{"update_id":7,"callback_query":[]}`,
	} {
		s, h := telegramSource(t)
		same(t, body, taken(t, s, h, body), inbound.Received{Unreadable: 1})
	}
}

func TestTelegram_SecretsThatTelegramCannotHave(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"a secret with spaces", "a-secret-with-ü-in-it", "a-secret-of-ours\n", strings.Repeat("x", 257)} {
		if _, err := inbound.Telegram(inbound.TelegramOptions{Secrets: []string{secret}}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", secret, err)
		}
	}
	opened(t)(inbound.Telegram(inbound.TelegramOptions{Secrets: []string{strings.Repeat("x", 256)}}))
}
