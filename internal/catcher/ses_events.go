package catcher

import (
	"context"
	"encoding/json"
	"time"
)

// says is what becomes of an e-mail, as SNS publishes it: nothing without a configuration
// set. own is where the fake is.
func (s *SES) says(own string, e *sesEmail, m Mail) (list []said) {
	end := EndOf(m.To[0])
	if e.ConfigurationSet == "" || s.Topic == "" || end == Silent {
		return nil
	}
	version := s.SignatureVersion
	if version == "" {
		version = "1"
	}
	now := instant(time.Now())
	tags := map[string][]string{"ses:configuration-set": {e.ConfigurationSet}}
	for _, t := range e.Tags {
		tags[t.Name] = []string{t.Value}
	}
	add := func(kind, name string, more any) {
		event := map[string]any{
			"eventType": kind, name: more, "mail": map[string]any{
				"timestamp": now, "messageId": m.ID, "source": m.From, "destination": m.To, "tags": tags,
				"commonHeaders": map[string]any{"from": []string{m.From}, "to": m.To, "subject": m.Subject, "messageId": m.ID},
			},
		}
		text, err := json.Marshal(event)
		if err != nil {
			panic(err) // it is made of texts
		}
		one := snsSays(s.Events.Path, "Notification", s.sns.signed(notification{Type: "Notification", Message: string(text)}, own, s.Topic, version))
		one.before = func(ctx context.Context) bool { return s.sns.subscribe(ctx, s.Events, own, s.Topic, version) }
		list = append(list, one)
	}
	bounced := func(kind, more, status, why string) map[string]any {
		one := map[string]string{"emailAddress": m.To[0], "action": "failed", "status": status, "diagnosticCode": why}
		return map[string]any{"bounceType": kind, "bounceSubType": more, "bouncedRecipients": []any{one}, "timestamp": now, "feedbackId": m.ID + "-000000", "reportingMTA": "dns; a8-1.smtp-out.amazonses.com"}
	}
	add("Send", "send", struct{}{})
	switch end {
	case Bounced:
		add("Bounce", "bounce", bounced("Permanent", "General", "5.1.1", "smtp; 550 5.1.1 nobody is there"))
	case SoftBounced:
		add("Bounce", "bounce", bounced("Transient", "MailboxFull", "4.2.2", "smtp; 452 4.2.2 the mailbox is full"))
	default:
		add("Delivery", "delivery", map[string]any{"timestamp": now, "recipients": m.To, "smtpResponse": "250 OK", "processingTimeMillis": 500})
	}
	if end == Complained {
		add("Complaint", "complaint", map[string]any{
			"complainedRecipients": []any{map[string]string{"emailAddress": m.To[0]}}, "timestamp": now, "complaintFeedbackType": "abuse", "feedbackId": m.ID + "-000001",
		})
	}
	return list
}
