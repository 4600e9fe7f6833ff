package catcher

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// says is what becomes of a message. WhatsApp has codes in place of bounces, and says
// nothing of complaints.
func (s *WhatsApp) says(m whatsAppMessage, to, id string) (list []said) {
	add := func(status string, code int) {
		one := map[string]any{
			"id": id, "status": status, "timestamp": strconv.FormatInt(time.Now().Unix(), 10), "recipient_id": to, "biz_opaque_callback_data": m.Marker,
		}
		if code != 0 {
			one["errors"] = []any{map[string]any{"code": code, "title": "it was not delivered", "error_data": map[string]string{"details": "see the documentation"}}}
		}
		value := map[string]any{"messaging_product": "whatsapp", "metadata": map[string]string{"display_phone_number": "15550100", "phone_number_id": "1"}, "statuses": []any{one}}
		body, err := json.Marshal(map[string]any{"object": "whatsapp_business_account", "entry": []any{map[string]any{"id": "1", "changes": []any{map[string]any{"field": "messages", "value": value}}}}})
		if err != nil {
			panic(err) // it is made of texts
		}
		list = append(list, said{url: s.Events.Path, contentType: "application/json", body: body, sign: s.sign})
	}
	end := EndOf(to)
	if end == Silent {
		return nil
	}
	add("sent", 0)
	switch end {
	case Bounced:
		add("failed", 131026) // undeliverable
	case SoftBounced:
		add("failed", 131049) // held back, for now
	case Unsubscribed:
		add("failed", 131050) // they want no marketing
	default:
		add("delivered", 0)
	}
	return list
}

func (s *WhatsApp) sign(r *http.Request, body []byte, _ time.Time) {
	mac := hmac.New(sha256.New, []byte(s.AppSecret))
	mac.Write(body)
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
}
