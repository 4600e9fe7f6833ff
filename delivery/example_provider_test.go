package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/deedhq/deed/delivery"
)

// texts is an adapter of one's own, for a service that takes text messages and
// knows a repeat by nothing. Package provider/providertest has the suite for it.
type texts struct{ url string }

func (texts) Capabilities() delivery.Capabilities {
	return delivery.Capabilities{Kind: "texts", Channels: []delivery.Channel{delivery.SMS}, Key: delivery.NoKey}
}

// Render makes the bytes that are stored before the first call.
func (texts) Render(d delivery.Draft) ([]byte, error) {
	var payload struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(d.Payload, &payload); err != nil || payload.Text == "" {
		return nil, errors.New("the payload has no text")
	}
	return json.Marshal(map[string]string{"to": d.Recipient, "text": payload.Text})
}

// Send makes one call, and says what is known of it, not what is hoped.
func (p texts) Send(ctx context.Context, r delivery.Reservation) delivery.Outcome {
	body, err := r.Request()
	if err != nil {
		return delivery.Refused(err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return delivery.Refused(err)
	}
	request.GetBody = nil // or net/http repeats it by itself
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return delivery.Unknown(err) // it may have arrived
	}
	defer answer.Body.Close()
	err = fmt.Errorf("status %d", answer.StatusCode)
	switch {
	case answer.StatusCode < 300:
		return delivery.Accepted(answer.Header.Get("Message-Id"))
	case answer.StatusCode == http.StatusTooManyRequests:
		return delivery.NotNow(err, 0)
	case answer.StatusCode < 500:
		return delivery.Refused(err)
	}
	return delivery.Unknown(err)
}

func ExampleProvider() {
	_ = delivery.Options{Providers: map[string]delivery.ProviderOptions{"texts": {Provider: texts{url: "https://sms.example/v1/messages"}}}}
}
