package sendgrid

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
)

const (
	signatureHeader = "X-Twilio-Email-Event-Webhook-Signature"
	timestampHeader = "X-Twilio-Email-Event-Webhook-Timestamp"

	// SendGrid repeats what is not answered for a day.
	tolerance = 25 * time.Hour
)

// publicKey reads a key as the webhook's settings show it.
func publicKey(text string) (*ecdsa.PublicKey, error) {
	bad := errors.New("option EventKey is not the base64 of an ECDSA public key of the curve P-256")
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, bad
	}
	parsed, err := x509.ParsePKIXPublicKey(raw)
	key, ok := parsed.(*ecdsa.PublicKey)
	if err != nil || !ok || key.Curve != elliptic.P256() {
		return nil, bad
	}
	return key, nil
}

// event is what SendGrid says of an e-mail. Custom arguments stand among its fields.
type event struct {
	Event     string `json:"event"`
	ID        string `json:"sg_event_id"`
	MessageID string `json:"sg_message_id"`
	Delivery  string `json:"deed_id"`
	Email     string `json:"email"`
	At        int64  `json:"timestamp"` // Unix seconds
	Reason    string `json:"reason"`
	Status    string `json:"status"` // 5.1.1
	Type      string `json:"type"`   // of a bounce: bounce or blocked
}

// What events say; others say nothing new, or are of no e-mail.
var events = map[string]delivery.Said{
	"processed": delivery.SaidAccepted, "delivered": delivery.SaidDelivered, "bounce": delivery.SaidBounced, "dropped": delivery.SaidDropped,
	"open": delivery.SaidOpened, "click": delivery.SaidClicked, "spamreport": delivery.SaidComplained, "unsubscribe": delivery.SaidUnsubscribed, "group_unsubscribe": delivery.SaidUnsubscribed,
}

// Why SendGrid drops an e-mail to an address of which that was said before; its other reasons say nothing
// of the address.
var saidBefore = map[string]delivery.Said{
	"Bounced Address": delivery.SaidBounced, "Spam Reporting Address": delivery.SaidComplained, "Unsubscribed Address": delivery.SaidUnsubscribed,
}

// ReadEvents implements [delivery.EventReader].
func (p *Provider) ReadEvents(r *http.Request, body []byte, now time.Time) (delivery.Told, error) {
	if p.eventKey == nil {
		return delivery.Told{}, delivery.ErrNoEvents
	}
	if !p.isSigned(r.Header, body, now) {
		return delivery.Told{}, delivery.ErrUnverified
	}
	var list []json.RawMessage
	if r.Method != http.MethodPost || json.Unmarshal(body, &list) != nil {
		return delivery.Told{}, errors.New("the body is no array of events")
	}
	var told delivery.Told
	for _, raw := range list {
		var e event
		if json.Unmarshal(raw, &e) != nil || e.Event == "" || e.ID == "" {
			told.Unreadable++
			continue
		}
		if v := e.read(); v.Said != "" {
			told.Events = append(told.Events, v)
		} else {
			told.Other++
		}
	}
	return told, nil
}

// isSigned reports whether SendGrid has signed a request: over its time and its body.
func (p *Provider) isSigned(h http.Header, body []byte, now time.Time) bool {
	for _, name := range []string{signatureHeader, timestampHeader} {
		if len(h.Values(name)) != 1 {
			return false
		}
	}
	timestamp := h.Get(timestampHeader)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	signature, wrong := base64.StdEncoding.DecodeString(h.Get(signatureHeader))
	if err != nil || wrong != nil || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return false
	}
	sum := sha256.Sum256(append([]byte(timestamp), body...))
	return ecdsa.VerifyASN1(p.eventKey, sum[:], signature)
}

// read says what an event is.
func (e event) read() delivery.StatusEvent {
	v := delivery.StatusEvent{Said: events[e.Event], ID: e.ID, MessageID: messageID(e.MessageID), Delivery: e.Delivery, Address: e.Email}
	if e.At > 0 {
		v.At = time.Unix(e.At, 0).UTC()
	}
	switch e.Event {
	case "bounce":
		v.Reason, v.Code = e.Reason, e.Status
		if e.Type == "blocked" || strings.HasPrefix(e.Status, "4.") {
			v.Said = delivery.SaidSoftBounced
		}
		if strings.HasPrefix(e.Status, "5.7.") { // which is about the sender
			v.Said = delivery.SaidDropped
		}
	case "dropped":
		v.Reason, v.Code = e.Reason, e.Status
		v.Said = cmp.Or(saidBefore[e.Reason], v.Said)
	}
	return v
}
