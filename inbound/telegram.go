package inbound

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"
)

// TelegramOptions configures [Telegram].
type TelegramOptions struct {
	// Secrets are those that setWebhook was given as secret_token: 16 to 256
	// characters of A-Z a-z 0-9 _ and -. Any of them verifies. Required.
	Secrets []string
}

const telegramHeader = "X-Telegram-Bot-Api-Secret-Token"

var (
	telegramSecret = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`) })

	// What an update may be that nobody wrote to us. A change of a message is none
	// of its own: it has a new update_id, so what was asked for once would be done
	// again for a mended typo.
	telegramIgnored = map[string]string{
		"edited_message": ignoredEdited, "edited_channel_post": ignoredEdited, "edited_business_message": ignoredEdited,
		"deleted_business_messages": ignoredDeleted,
		"channel_post":              ignoredChannel,
		"message_reaction":          ignoredReaction, "message_reaction_count": ignoredReaction,
		"my_chat_member": ignoredMembership, "chat_member": ignoredMembership, "chat_join_request": ignoredMembership,
	}

	// The members of messages that are the platform's notes of what happened.
	telegramMembership = []string{"new_chat_members", "left_chat_member", "chat_owner_left", "chat_owner_changed"}
	telegramService    = []string{
		"new_chat_title", "new_chat_photo", "delete_chat_photo", "group_chat_created", "supergroup_chat_created", "channel_chat_created",
		"message_auto_delete_timer_changed", "migrate_to_chat_id", "migrate_from_chat_id", "pinned_message", "boost_added", "chat_background_set",
		"forum_topic_created", "forum_topic_edited", "forum_topic_closed", "forum_topic_reopened", "general_forum_topic_hidden", "general_forum_topic_unhidden",
		"giveaway_created", "giveaway_completed", "proximity_alert_triggered",
		"video_chat_scheduled", "video_chat_started", "video_chat_ended", "video_chat_participants_invited",
	}
)

type telegram struct{ secrets [][]byte }

// Telegram reads a bot's updates. Telegram signs no body: a request is verified by
// the secret that it carries, so who has seen one can make others, and a source's
// URL must be https.
//
// A message and a pressed button (callback_query, whose data is the text) are
// events: the id is the update's, which is unique for its bot, so each bot is a
// source of its own. The sender is the user's id, of kind telegram. An answer goes
// to the chat's id; in a topic of a forum to CHAT/TOPIC. Ignored are bots, edited
// messages, what channels and groups say themselves, reactions, who comes and goes,
// the platform's notes, and all other updates.
func Telegram(opts TelegramOptions) (Source, error) {
	keys, err := secretKeys("Secrets", opts.Secrets)
	errs := []error{err}
	for i, s := range opts.Secrets {
		if s != "" && !telegramSecret().MatchString(s) {
			errs = append(errs, fmt.Errorf("option Secrets: secret %d is not up to 256 characters of A-Z a-z 0-9 _ and -", i+1))
		}
	}
	if err := misconfigured("telegram", errs...); err != nil {
		return nil, err
	}
	return &telegram{secrets: keys}, nil
}

func (t *telegram) Read(r *http.Request, body []byte, _ time.Time) (Received, error) {
	if err := t.VerifyHeaders(r.Header); err != nil {
		return Received{}, err
	}
	update, body, err := readPost(r, body)
	if err != nil {
		return Received{}, err
	}
	id := update.integer("update_id")
	if id == "" {
		return Received{}, invalid("the update has no update_id that is a whole number")
	}
	var got Received
	switch {
	case update.has("message"):
		got.try(func() error { return got.addTelegram(update.object("message"), Event{ID: id, Body: body}) })
	case update.has("callback_query"):
		got.try(func() error { return got.addPressed(update.object("callback_query"), Event{ID: id, Body: body}) })
	default:
		word := ignoredOther
		for name, w := range telegramIgnored {
			if update.has(name) {
				word = w
			}
		}
		got.ignore(word, 1)
	}
	return got, nil
}

// VerifyHeaders implements [HeaderVerifier].
func (t *telegram) VerifyHeaders(h http.Header) error {
	given, err := single(h, telegramHeader)
	if err != nil {
		return err
	}
	if !isSecret(given, t.secrets) {
		return unverified("the header " + telegramHeader + " has another secret")
	}
	return nil
}

// addTelegram adds a message, or counts why it is none.
func (r *Received) addTelegram(m object, e Event) error {
	from, chat := m.object("from"), m.object("chat")
	switch {
	case m == nil:
		return invalid("the message is not an object")
	case from.isTrue("is_bot"):
		// Before sender_chat: anonymous administrators are sent as a bot.
		r.ignore(ignoredBot, 1)
	case m.has("sender_chat") || !m.has("from"):
		r.ignore(ignoredChannel, 1)
	case slices.ContainsFunc(telegramMembership, m.has):
		r.ignore(ignoredMembership, 1)
	case slices.ContainsFunc(telegramService, m.has):
		r.ignore(ignoredService, 1)
	default:
		e.Text = m.text("text")
		if e.Text == "" {
			e.Text = m.text("caption")
		}
		return r.addTelegramFrom(from, chat, m, e)
	}
	return nil
}

// addPressed adds a button that somebody pressed. One under a message that was sent
// by way of the bot to somewhere else has no chat; who pressed it is answered alone.
func (r *Received) addPressed(q object, e Event) error {
	from, m := q.object("from"), q.object("message")
	if from.isTrue("is_bot") {
		r.ignore(ignoredBot, 1)
		return nil
	}
	chat := m.object("chat")
	if chat == nil {
		chat = from
	}
	e.Text = q.text("data")
	return r.addTelegramFrom(from, chat, m, e)
}

func (r *Received) addTelegramFrom(from, chat, m object, e Event) error {
	e.Sender, e.Kind, e.ReplyTo = from.integer("id"), "telegram", chat.integer("id")
	if e.Sender == "" || e.ReplyTo == "" {
		return invalid("the message has no from.id or chat.id that is a whole number")
	}
	if topic := m.integer("message_thread_id"); topic != "" && m.isTrue("is_topic_message") {
		e.ReplyTo += "/" + topic
	}
	return r.add(e)
}
