package postmark

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/deedhq/deed/delivery"
)

// event is what Postmark says of an e-mail.
type event struct {
	Type      string            `json:"RecordType"`
	ID        int64             `json:"ID"` // a bounce's
	MessageID string            `json:"MessageID"`
	Metadata  map[string]string `json:"Metadata"`
	Recipient string            `json:"Recipient"`
	Email     string            `json:"Email"`
	Bounce    string            `json:"Type"`
	Details   string            `json:"Details"`

	DeliveredAt string `json:"DeliveredAt"`
	BouncedAt   string `json:"BouncedAt"`
	ReceivedAt  string `json:"ReceivedAt"`
	ChangedAt   string `json:"ChangedAt"`

	Suppressed bool   `json:"SuppressSending"`
	Origin     string `json:"Origin"`            // Recipient, Customer, Admin
	Why        string `json:"SuppressionReason"` // HardBounce, SpamComplaint, ManualSuppression
}

// What the types of bounces say of an address; the others say nothing of it.
var bounces = map[string]delivery.Said{
	"HardBounce": delivery.SaidBounced, "BadEmailAddress": delivery.SaidBounced,
	"SoftBounce": delivery.SaidSoftBounced, "DnsError": delivery.SaidSoftBounced, "AddressChange": delivery.SaidSoftBounced,
	"SpamComplaint": delivery.SaidComplained, "Unsubscribe": delivery.SaidUnsubscribed,
	"SpamNotification": delivery.SaidDropped, "VirusNotification": delivery.SaidDropped, "Blocked": delivery.SaidDropped, "DMARCPolicy": delivery.SaidDropped,
	"ManuallyDeactivated": delivery.SaidDropped, "SMTPApiError": delivery.SaidDropped, "TemplateRenderingFailed": delivery.SaidDropped, "Unknown": delivery.SaidDropped,
}

// ReadEvents implements [delivery.EventReader]. Postmark signs nothing: a request is
// believed by the user and the password of its webhook's URL, which must be https.
func (p *Provider) ReadEvents(r *http.Request, body []byte, _ time.Time) (delivery.Told, error) {
	if err := p.VerifyHeaders(r.Header); err != nil {
		return delivery.Told{}, err
	}
	var e event
	if r.Method != http.MethodPost || json.Unmarshal(body, &e) != nil || e.Type == "" {
		return delivery.Told{}, errors.New("the body is no event")
	}
	return e.read(), nil
}

// VerifyHeaders implements [delivery.HeaderVerifier].
func (p *Provider) VerifyHeaders(h http.Header) error {
	if p.opts.EventUser == "" {
		return delivery.ErrNoEvents
	}
	user, password, given := (&http.Request{Header: h}).BasicAuth()
	if same := isSame(user, p.opts.EventUser) && isSame(password, p.opts.EventPassword); !given || !same || len(h.Values("Authorization")) != 1 {
		return delivery.ErrUnverified
	}
	return nil
}

// isSame compares in a time that says nothing of either.
func isSame(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return hmac.Equal(x[:], y[:])
}

// read says what an event is. Only bounces have an id; those of a message are told apart by
// what they are.
func (e event) read() delivery.Told {
	v := delivery.StatusEvent{ID: e.Type + ":" + e.MessageID, Delivery: e.Metadata["deed_id"], MessageID: e.MessageID, Address: e.Recipient}
	switch e.Type {
	case "Delivery":
		v.Said, v.At = delivery.SaidDelivered, timeOf(e.DeliveredAt)
	case "Open":
		v.Said, v.At = delivery.SaidOpened, timeOf(e.ReceivedAt)
	case "Click":
		v.Said, v.At = delivery.SaidClicked, timeOf(e.ReceivedAt)
	case "SpamComplaint", "Bounce":
		v.Said, v.ID, v.Address, v.At = bounces[e.Bounce], fmt.Sprintf("%s:%d", e.Type, e.ID), e.Email, timeOf(e.BouncedAt)
		if e.Type == "SpamComplaint" {
			v.Said = delivery.SaidComplained
		}
		v.Reason, v.Code = e.Details, e.Bounce
	case "SubscriptionChange":
		if e.Suppressed && e.Origin == "Recipient" && e.Why == "ManualSuppression" {
			v.Said, v.At = delivery.SaidUnsubscribed, timeOf(e.ChangedAt)
		}
	}
	if v.Said == "" {
		return delivery.Told{Other: 1}
	}
	return delivery.Told{Events: []delivery.StatusEvent{v}}
}

// timeOf reads a time as Postmark writes it; zero, which is now, where it does not.
func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text)
	return at
}
