package catcher

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/deedhq/deed/internal/uuid"
)

// sendGridKey signs what is said of e-mails.
type sendGridKey struct {
	made    sync.Once
	private *ecdsa.PrivateKey
}

func (k *sendGridKey) key() *ecdsa.PrivateKey {
	k.made.Do(func() {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err) // there is no randomness
		}
		k.private = private
	})
	return k.private
}

// EventKey is the public key of what it says of e-mails, as the webhook's settings show it.
func (s *SendGrid) EventKey() string {
	public, err := x509.MarshalPKIXPublicKey(&s.events.key().PublicKey)
	if err != nil {
		panic(err) // the key is ours
	}
	return base64.StdEncoding.EncodeToString(public)
}

// says is what becomes of an e-mail: custom arguments stand among an event's fields.
func (s *SendGrid) says(e sendGridEmail, id string) (list []said) {
	to := e.Personalizations[0].To[0].Email
	add := func(kind string, more map[string]any) {
		event := map[string]any{
			"email": to, "timestamp": time.Now().Unix(), "event": kind, "smtp-id": "<" + id + "@geopod-ismtpd-1>",
			"sg_event_id": base64.RawURLEncoding.EncodeToString([]byte(uuid.New().String())), "sg_message_id": id + ".recvd-1-1-1.0",
		}
		for name, value := range e.CustomArgs {
			event[name] = value
		}
		maps.Copy(event, more)
		body, err := json.Marshal([]any{event})
		if err != nil {
			panic(err) // it is made of texts
		}
		list = append(list, said{url: s.Events.Path, contentType: "application/json;charset=utf-8", body: append(body, "\r\n"...), sign: s.sign})
	}
	end := EndOf(to)
	if end == Silent {
		return nil
	}
	add("processed", nil)
	switch end {
	case Bounced:
		add("bounce", map[string]any{"type": "bounce", "status": "5.1.1", "reason": "550 5.1.1 nobody is there", "bounce_classification": "Invalid Address"})
	case SoftBounced:
		add("bounce", map[string]any{"type": "blocked", "status": "4.2.2", "reason": "452 4.2.2 the mailbox is full", "bounce_classification": "Mailbox Unavailable"})
	default:
		add("delivered", map[string]any{"response": "250 OK"})
	}
	switch end {
	case Complained:
		add("spamreport", nil)
	case Unsubscribed:
		add("unsubscribe", nil)
	}
	return list
}

func (s *SendGrid) sign(r *http.Request, body []byte, at time.Time) {
	timestamp := fmt.Sprint(at.Unix())
	sum := sha256.Sum256(append([]byte(timestamp), body...))
	signature, err := ecdsa.SignASN1(rand.Reader, s.events.key(), sum[:])
	if err != nil {
		panic(err) // the key is ours
	}
	r.Header.Set("X-Twilio-Email-Event-Webhook-Timestamp", timestamp)
	r.Header.Set("X-Twilio-Email-Event-Webhook-Signature", base64.StdEncoding.EncodeToString(signature))
}
