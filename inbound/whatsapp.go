package inbound

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
)

// WhatsAppOptions configures [WhatsApp].
type WhatsAppOptions struct {
	// AppSecrets are the app's secrets: 16 bytes at the least. Any of them verifies.
	// Required.
	AppSecrets []string
	// VerifyToken is what the app's settings have as the webhook's verify token.
	// Required.
	VerifyToken string
}

const whatsAppSignature = "X-Hub-Signature-256"

// What a message may be that nobody wrote to us.
var whatsAppIgnored = map[string]string{
	"reaction": ignoredReaction, "system": ignoredService, "request_welcome": ignoredService, "edit": ignoredEdited, "revoke": ignoredDeleted,
}

type whatsApp struct{ secrets, token [][]byte }

// WhatsApp reads the webhooks of WhatsApp's Cloud API. A request is verified by its
// signature over the body. It says nothing of when it was signed: who has seen one
// can repeat it, as a repeat. A GET with the verify token is answered with its
// challenge.
//
// Each message is an event of its own, whose body is the webhook that would have
// brought it alone: with its entry, metadata and contact. The id is the message's
// (wamid), the sender the user's wa_id, a number, of kind whatsapp. Who has a user
// name may come without a number: then the sender is their business-scoped user id
// (from_user_id), of kind whatsapp_user. Where there are both, their contact is known
// by both. An answer goes to the sender, or for what
// was written in a group to the group's id. What was chosen of buttons or a list is
// text by its title. Statuses are [Received].Statuses. Ignored are reactions, messages edited
// or deleted, the platform's notes, and all other changes and objects. Of a request
// up to 2,000 messages are read, whose bodies come to 12 MiB, and none beside which
// over 16 KiB are said: no request of Meta's, which has up to 1,000, comes near that.
func WhatsApp(opts WhatsAppOptions) (Source, error) {
	keys, err := secretKeys("AppSecrets", opts.AppSecrets)
	errs := []error{err}
	switch {
	case opts.VerifyToken == "":
		errs = append(errs, errors.New("option VerifyToken is missing"))
	case !isPlain(opts.VerifyToken, longestID):
		errs = append(errs, errors.New("option VerifyToken has over 255 bytes or a control character"))
	}
	if err := misconfigured("whatsapp", errs...); err != nil {
		return nil, err
	}
	return &whatsApp{secrets: keys, token: [][]byte{[]byte(opts.VerifyToken)}}, nil
}

const (
	mostMessages = 2000     // of a request
	mostBeside   = 16 << 10 // bytes of what is said beside a message
	mostBodies   = 12 << 20 // bytes of a request's messages, each with what is said beside it
)

// mostBody is what Meta says that a webhook has at most, which are 3 MB.
func (w *whatsApp) mostBody() int64 { return 3 << 20 }

func (w *whatsApp) Read(r *http.Request, body []byte, _ time.Time) (Received, error) {
	if r.Method == http.MethodGet {
		return w.shakeHands(r.URL)
	}
	if err := w.verify(r.Header, body); err != nil {
		return Received{}, err
	}
	root, _, err := readPost(r, body)
	if err != nil {
		return Received{}, err
	}
	var got whatsAppRequest
	switch root.text("object") {
	case "whatsapp_business_account":
	case "":
		return Received{}, invalid("the body has no object's name")
	default:
		got.ignore(ignoredOther, 1)
		return got.Received, nil
	}
	entries, ok := root.array("entry")
	if !ok {
		return Received{}, invalid("the body's entry is no array")
	}
	for _, raw := range entries {
		got.try(func() error { return got.addEntry(fields(raw)) })
	}
	return got.Received, nil
}

// shakeHands answers the request by which Meta asks whether the URL is ours.
func (w *whatsApp) shakeHands(u *url.URL) (Received, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Received{}, unverified("its query cannot be read")
	}
	for _, name := range []string{"hub.mode", "hub.verify_token", "hub.challenge"} {
		if len(query[name]) != 1 {
			return Received{}, unverified("the parameter " + name + " is missing, or there twice")
		}
	}
	if query.Get("hub.mode") != "subscribe" || !isSecret(query.Get("hub.verify_token"), w.token) {
		return Received{}, unverified("the parameter hub.verify_token has another token")
	}
	answer, err := challenge(query.Get("hub.challenge"))
	if err != nil {
		return Received{}, err
	}
	return Received{Answer: answer}, nil
}

func (w *whatsApp) verify(h http.Header, body []byte) error {
	signature, err := single(h, whatsAppSignature)
	if err != nil {
		return err
	}
	encoded, known := strings.CutPrefix(signature, "sha256=")
	sum, ok := decodeSum("hex", encoded)
	if !known || !ok || !isSum(sum, w.secrets, body) {
		return unverified("the header " + whatsAppSignature + " has another signature")
	}
	return nil
}

// whatsAppRequest is what a request has in it, as far as it is read.
type whatsAppRequest struct {
	Received
	messages, bytes int // those that were looked at, and what their bodies come to
}

// addEntry adds the messages of an entry's changes.
func (r *whatsAppRequest) addEntry(entry object) error {
	changes, ok := entry.array("changes")
	if entry == nil || !ok {
		return invalid("an entry is no object with an array of changes")
	}
	for _, raw := range changes {
		r.try(func() error { return r.addChange(entry, fields(raw)) })
	}
	return nil
}

// addChange adds a change's messages, and counts what else it has.
func (r *whatsAppRequest) addChange(entry, change object) error {
	if change != nil && change.text("field") != "messages" {
		r.ignore(ignoredOther, 1)
		return nil
	}
	value := change.object("value")
	messages, ok := value.array("messages")
	if value == nil || !ok {
		return invalid("a change is no object with a value with an array of messages")
	}
	for _, raw := range items(value["statuses"]) {
		r.try(func() error { return r.addStatus(fields(raw)) })
	}
	r.ignore(ignoredOther, len(items(value["errors"])))
	around := surroundings{entry: entry["id"], metadata: value["metadata"], contacts: map[string]json.RawMessage{}}
	for _, raw := range items(value["contacts"]) {
		c := fields(raw)
		around.contacts[c.text("wa_id")], around.contacts[c.text("user_id")] = raw, raw
	}
	for _, raw := range messages {
		r.try(func() error { return r.addWhatsApp(around, fields(raw), raw) })
	}
	return nil
}

func (r *whatsAppRequest) addWhatsApp(around surroundings, m object, raw json.RawMessage) error {
	if word := whatsAppIgnored[m.text("type")]; word != "" {
		r.ignore(word, 1)
		return nil
	}
	e := Event{ID: m.text("id"), Sender: m.text("from"), Kind: "whatsapp", Text: m.writtenText()}
	user := m.text("from_user_id")
	if !isDigits(e.Sender) {
		e.Sender, e.Kind = user, "whatsapp_user"
	}
	if err := r.makeRoom(around, e.Sender, raw); err != nil {
		return err
	}
	if user = cmp.Or(user, fields(around.contacts[e.Sender]).text("user_id")); e.Kind == "whatsapp" && user != "" {
		e.Also = []Identity{{Kind: "whatsapp_user", Value: user}}
	}
	e.ReplyTo = cmp.Or(m.text("group_id"), e.Sender)
	e.Body = around.alone(e.Sender, raw)
	return r.add(e)
}

// makeRoom counts a message, and refuses it where its request is none of Meta's size: all that
// its change says beside it is going to be read and written once more for it.
func (r *whatsAppRequest) makeRoom(around surroundings, sender string, message json.RawMessage) error {
	beside := len(around.entry) + len(around.metadata) + len(around.contacts[sender])
	r.messages++
	switch {
	case r.messages > mostMessages:
		return invalid("the request has over 2,000 messages")
	case beside > mostBeside:
		return invalid("what is said beside the message is over 16 KiB")
	case r.bytes+beside+len(message) > mostBodies:
		return invalid("the request's messages come to over 12 MiB, each with what is said beside it")
	}
	r.bytes += beside + len(message)
	return nil
}

// What a status says; others say nothing new.
var whatsAppStatuses = map[string]delivery.Said{
	"sent": delivery.SaidAccepted, "delivered": delivery.SaidDelivered, "read": delivery.SaidOpened, "failed": delivery.SaidDropped,
}

// Why a message failed, where it says something of the recipient.
var whatsAppFailures = map[string]delivery.Said{"131026": delivery.SaidSoftBounced, "131050": delivery.SaidUnsubscribed}

// addStatus adds what became of a message of ours, whose marker it has.
func (r *whatsAppRequest) addStatus(o object) error {
	id, status := o.text("id"), o.text("status")
	if id == "" || status == "" || len(id)+1+len(status) > longestID {
		return invalid("a status has no id, or no status")
	}
	e := delivery.StatusEvent{Said: whatsAppStatuses[status], ID: id + ":" + status, Delivery: o.text("biz_opaque_callback_data"), MessageID: id}
	if seconds, err := strconv.ParseInt(o.text("timestamp"), 10, 64); err == nil {
		e.At = time.Unix(seconds, 0).UTC()
	}
	if list := items(o["errors"]); status == "failed" && len(list) > 0 {
		e.Code = fields(list[0]).integer("code")
		if said, ok := whatsAppFailures[e.Code]; ok {
			e.Said = said
		}
	}
	if e.Said == "" {
		r.ignore(ignoredOther, 1)
		return nil
	}
	r.Statuses = append(r.Statuses, e)
	return nil
}

// writtenText returns what somebody wrote, or chose of what they were offered.
func (o object) writtenText() string {
	interactive := o.object("interactive")
	return cmp.Or(o.object("text").text("body"), o.object("button").text("text"),
		interactive.object("button_reply").text("title"), interactive.object("list_reply").text("title"),
		o.object("image").text("caption"), o.object("video").text("caption"), o.object("document").text("caption"))
}

// surroundings is what a change says beside its messages.
type surroundings struct {
	entry, metadata json.RawMessage
	contacts        map[string]json.RawMessage // by number and by user id
}

// alone returns the webhook that would have brought one message: what others wrote
// in the same request is not this sender's to keep, nor goes when they are erased.
func (s surroundings) alone(sender string, message json.RawMessage) json.RawMessage {
	or := func(raw json.RawMessage) json.RawMessage {
		if raw == nil {
			return json.RawMessage("null")
		}
		return raw
	}
	return fmt.Appendf(nil, `{"object":"whatsapp_business_account","entry":[{"id":%s,"changes":[{"field":"messages",`+
		`"value":{"messaging_product":"whatsapp","metadata":%s,"contacts":[%s],"messages":[%s]}}]}]}`,
		or(s.entry), or(s.metadata), s.contacts[sender], message)
}
