package resend

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/sink/webhook"
)

// What Resend's events are; others are of no e-mail, or say nothing new.
var events = map[string]delivery.Said{
	"email.sent": delivery.SaidAccepted, "email.delivered": delivery.SaidDelivered, "email.complained": delivery.SaidComplained,
	"email.opened": delivery.SaidOpened, "email.clicked": delivery.SaidClicked, "email.bounced": delivery.SaidBounced,
	"email.suppressed": delivery.SaidBounced, "email.failed": delivery.SaidDropped,
}

// event is what Resend says of an e-mail.
type event struct {
	Type string `json:"type"`
	At   string `json:"created_at"`
	Data struct {
		ID     string          `json:"email_id"`
		Tags   json.RawMessage `json:"tags"` // by their names
		Bounce struct {
			Type    string `json:"type"` // Permanent, Transient, Undetermined
			SubType string `json:"subType"`
			Message string `json:"message"`
		} `json:"bounce"`
		Suppressed struct {
			Reason string `json:"reason"` // previous_bounce, previous_complaint
		} `json:"suppressed"`
		Failed struct {
			Reason string `json:"reason"`
		} `json:"failed"`
	} `json:"data"`
}

// ReadEvents implements [delivery.EventReader]. A request is signed as Svix does, and as
// Standard Webhooks says under other names: its id is the event's.
func (p *Provider) ReadEvents(r *http.Request, body []byte, now time.Time) (delivery.Told, error) {
	if p.opts.EventSecret == "" {
		return delivery.Told{}, delivery.ErrNoEvents
	}
	renamed := http.Header{}
	for _, name := range []string{"Id", "Timestamp", "Signature"} {
		if list := r.Header.Values("Svix-" + name); len(list) == 1 {
			renamed.Set("Webhook-"+name, list[0])
		}
	}
	if err := webhook.Verify([]string{p.opts.EventSecret}, renamed, body, 0, now); err != nil {
		return delivery.Told{}, delivery.ErrUnverified
	}
	var e event
	if r.Method != http.MethodPost || json.Unmarshal(body, &e) != nil || e.Type == "" {
		return delivery.Told{}, errors.New("the body is no event")
	}
	said, known := events[e.Type]
	if !known {
		return delivery.Told{Other: 1}, nil
	}
	var tags map[string]string
	_ = json.Unmarshal(e.Data.Tags, &tags)
	at, _ := time.Parse(time.RFC3339, e.At)
	// Whom it is about is not said: data.to is the e-mail's, whoever gets a copy.
	v := delivery.StatusEvent{
		Said: said, ID: renamed.Get("Webhook-Id"), Delivery: tags["deed_id"], MessageID: e.Data.ID, At: at,
		Reason: e.Data.Bounce.Message + e.Data.Failed.Reason + e.Data.Suppressed.Reason, Code: e.Data.Bounce.SubType,
	}
	switch {
	case e.Type == "email.bounced" && !strings.EqualFold(e.Data.Bounce.Type, "Permanent"):
		v.Said = delivery.SaidSoftBounced
	case e.Data.Suppressed.Reason == "previous_complaint":
		v.Said = delivery.SaidComplained
	}
	return delivery.Told{Events: []delivery.StatusEvent{v}}, nil
}
