package catcher

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"time"
)

// says is what becomes of an e-mail. Postmark signs nothing, and says who it is.
func (s *Postmark) says(e postmarkEmail, id string) (list []said) {
	stream := e.MessageStream
	if stream == "" {
		stream = "outbound"
	}
	now := instant(time.Now())
	add := func(kind string, more map[string]any) {
		event := map[string]any{"RecordType": kind, "ServerID": 1, "MessageStream": stream, "MessageID": id, "Metadata": e.Metadata, "Tag": ""}
		maps.Copy(event, more)
		body, err := json.Marshal(event)
		if err != nil {
			panic(err) // it is made of texts
		}
		list = append(list, said{url: s.Events.Path, contentType: "application/json", body: body, sign: func(r *http.Request, _ []byte, _ time.Time) {
			r.SetBasicAuth(s.EventUser, s.EventPassword)
		}})
	}
	bounced := func(kind, bounce string, code int, details string) {
		add(kind, map[string]any{
			"ID": rand.Int64N(1 << 62), "Type": bounce, "TypeCode": code, "Name": bounce, "Description": details, "Details": details, "Email": e.To, "From": e.From,
			"BouncedAt": now, "DumpAvailable": false, "Inactive": bounce != "SoftBounce", "CanActivate": true, "Subject": e.Subject,
		})
	}
	switch end := EndOf(e.To); end {
	case Silent:
	case Bounced:
		bounced("Bounce", "HardBounce", 1, "550 5.1.1 nobody is there")
	case SoftBounced:
		bounced("Bounce", "SoftBounce", 4096, "452 4.2.2 the mailbox is full")
	default:
		add("Delivery", map[string]any{"Recipient": e.To, "DeliveredAt": now, "Details": "250 OK"})
		if end == Complained {
			bounced("SpamComplaint", "SpamComplaint", 100001, "")
		}
		if end == Unsubscribed {
			add("SubscriptionChange", map[string]any{"Recipient": e.To, "ChangedAt": now, "Origin": "Recipient", "SuppressSending": true, "SuppressionReason": "ManualSuppression"})
		}
	}
	return list
}
