package inbound

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"
)

// SlackOptions configures [Slack].
type SlackOptions struct {
	// Secrets are the app's signing secrets: 16 bytes at the least. Any of them
	// verifies. Required.
	Secrets []string
}

const (
	slackSignature = "X-Slack-Signature"
	slackTimestamp = "X-Slack-Request-Timestamp"
	slackBot       = "USLACKBOT" // the user that Slack's own notes are from
)

// What a message's subtype may be for it to be somebody's; most have none.
var (
	slackWritten = []string{"", "file_share", "thread_broadcast", "me_message"}
	slackIgnored = map[string]string{
		"message_changed": ignoredEdited, "message_deleted": ignoredDeleted, "bot_message": ignoredBot,
		"channel_join": ignoredMembership, "channel_leave": ignoredMembership, "group_join": ignoredMembership, "group_leave": ignoredMembership,
		"reaction_added": ignoredReaction, "reaction_removed": ignoredReaction,
		"member_joined_channel": ignoredMembership, "member_left_channel": ignoredMembership,
	}
)

type slack struct{ keys [][]byte }

// Slack reads an app's Events API. A request is verified by its signature, v0, that
// was made within five minutes before or after now. A url_verification is answered
// with its challenge, once it is verified.
//
// Events of the types message and app_mention are events here. Their id is the
// event_id, so that what Slack sends again is a repeat. An app that asks for both
// types gets two events of one message where it is mentioned: ask for one of them.
// The sender is TEAM:USER, of kind slack, since a user's id is one of their team: in
// a channel shared with another organisation that user's own team, else the
// workspace's. An answer goes to CHANNEL, or in a thread to CHANNEL/THREAD_TS.
// Ignored are bots, this one too, messages that were edited or deleted, reactions,
// who comes and goes, and all other events.
func Slack(opts SlackOptions) (Source, error) {
	keys, err := secretKeys("Secrets", opts.Secrets)
	if err := misconfigured("slack", err); err != nil {
		return nil, err
	}
	return &slack{keys: keys}, nil
}

func (s *slack) Read(r *http.Request, body []byte, now time.Time) (Received, error) {
	if err := s.verify(r.Header, body, now); err != nil {
		return Received{}, err
	}
	envelope, body, err := readPost(r, body)
	if err != nil {
		return Received{}, err
	}
	var got Received
	switch envelope.text("type") {
	case "url_verification":
		got.Answer, err = challenge(envelope.text("challenge"))
	case "event_callback":
		got.try(func() error { return got.addSlack(envelope, body) })
	case "":
		err = invalid("the body has no type")
	default:
		got.ignore(ignoredOther, 1)
	}
	if err != nil {
		return Received{}, err
	}
	return got, nil
}

func (s *slack) verify(h http.Header, body []byte, now time.Time) error {
	signature, err := single(h, slackSignature)
	if err != nil {
		return err
	}
	timestamp, err := single(h, slackTimestamp)
	if err != nil {
		return err
	}
	if err := fresh(timestamp, now); err != nil {
		return err
	}
	encoded, known := strings.CutPrefix(signature, "v0=")
	sum, ok := decodeSum("hex", encoded)
	if !known || !ok || !isSum(sum, s.keys, []byte("v0:"+timestamp+":"), body) {
		return unverified("the header " + slackSignature + " has another signature")
	}
	return nil
}

// addSlack adds an event, or counts why it is nobody's message.
func (r *Received) addSlack(envelope object, body []byte) error {
	event := envelope.object("event")
	kind, subtype := event.text("type"), event.text("subtype")
	user, channel := event.text("user"), event.text("channel")
	switch {
	case kind == "":
		return invalid("the event has no type")
	case kind != "message" && kind != "app_mention":
		r.ignore(cmp.Or(slackIgnored[kind], ignoredOther), 1)
		return nil
	case !slices.Contains(slackWritten, subtype):
		r.ignore(cmp.Or(slackIgnored[subtype], ignoredOther), 1)
		return nil
	case event.has("bot_id") || user == slackBot || isSlackApp(envelope, user):
		r.ignore(ignoredBot, 1)
		return nil
	}
	team := cmp.Or(event.text("user_team"), envelope.text("team_id"))
	if !isSlackName(team) || !isSlackName(user) || !isSlackName(channel) {
		return invalid("the event has no team, user or channel as Slack names them")
	}
	e := Event{ID: envelope.text("event_id"), Sender: team + ":" + user, Kind: "slack", ReplyTo: channel, Text: event.text("text"), Body: body}
	if thread := event.text("thread_ts"); thread != "" {
		if !isDigits(strings.Replace(thread, ".", "", 1)) {
			return invalid("the event's thread_ts is none")
		}
		e.ReplyTo += "/" + thread
	}
	return r.add(e)
}

// isSlackApp reports whether a user is the bot that a request is for.
func isSlackApp(envelope object, user string) bool {
	for _, raw := range items(envelope["authorizations"]) {
		if a := fields(raw); a.isTrue("is_bot") && user != "" && a.text("user_id") == user {
			return true
		}
	}
	return false
}

// isSlackName reports whether an id is one of Slack's, so that what is put together
// of them can be taken apart again.
func isSlackName(id string) bool {
	return id != "" && strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}
