package catcher

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/uuid"
)

// says is what becomes of an e-mail, signed as Svix does. Resend says nothing of
// unsubscriptions by e-mail.
func (s *Resend) says(e *resendEmail, id string) (list []said) {
	tags := map[string]string{}
	for _, t := range e.Tags {
		tags[t.Name] = t.Value
	}
	to := addresses(e.To)
	add := func(kind, name string, more any) {
		now := instant(time.Now())
		data := map[string]any{"email_id": id, "created_at": now, "from": e.From, "to": to, "subject": e.Subject, "tags": tags}
		if name != "" {
			data[name] = more
		}
		list = append(list, s.signs(map[string]any{"type": kind, "created_at": now, "data": data}))
	}
	end := EndOf(to[0])
	if end == Silent {
		return nil
	}
	add("email.sent", "", nil)
	switch end {
	case Bounced:
		add("email.bounced", "bounce", map[string]string{"type": "Permanent", "subType": "General", "message": "550 5.1.1 nobody is there"})
	case SoftBounced:
		add("email.bounced", "bounce", map[string]string{"type": "Transient", "subType": "MailboxFull", "message": "452 4.2.2 the mailbox is full"})
	default:
		add("email.delivered", "", nil)
	}
	if end == Complained {
		add("email.complained", "", nil)
	}
	return list
}

func (s *Resend) signs(event any) said {
	body, err := json.Marshal(event)
	if err != nil {
		panic(err) // it is made of texts
	}
	id := "msg_" + strings.ReplaceAll(uuid.New().String(), "-", "")
	return said{url: s.Events.Path, contentType: "application/json", body: body, sign: func(r *http.Request, body []byte, at time.Time) {
		key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.EventSecret, "whsec_")) // a wrong one signs wrongly
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
		r.Header.Set("Svix-Id", id)
		r.Header.Set("Svix-Timestamp", fmt.Sprint(at.Unix()))
		r.Header.Set("Svix-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}}
}
