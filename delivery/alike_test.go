package delivery_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// A message that was found by its looks is a delivery's only if no other one can have it:
// neither one that has, nor one that is in doubt as well.
func TestContract_D5_AMessageThatLooksAlike(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := &finder{fake: newFake(), n: map[string]int{}}
	f.caps.Channels = append(f.caps.Channels, delivery.SMS, delivery.Social)
	var both sync.WaitGroup
	both.Add(2)
	f.fake.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		request, err := r.Request()
		switch text := string(request); {
		case err != nil:
			return delivery.Refused(err), false
		case strings.Contains(text, "answered"):
			return delivery.Accepted("SM-" + r.Recipient()), true
		case strings.Contains(text, "one"), strings.Contains(text, "two"):
			both.Done()
			both.Wait()
		}
		return delivery.Unknown(errCut), true
	}
	f.find = func(_ int, r delivery.Reservation) (delivery.Finding, error) {
		return delivery.Finding{Found: true, MessageID: "SM-" + r.Recipient(), Alike: true}, nil
	}
	sms := func(to, text string) delivery.Delivery {
		return delivery.Delivery{Channel: delivery.SMS, Provider: "fake", Recipient: to, Payload: []byte(`{"text": "` + text + `"}`), Key: delivery.NewKey(to, text)}
	}
	first := reserve(t, db, sms("+4930000001", "answered"))
	made := reserve(t, db, sms("+49 30 000002", "one"), sms("+4930000002", "two"), sms("+4930000003", "by itself"))
	run(t, db, fast(f))
	until(t, db, first[0].ID, delivery.Sent)
	alike := reserve(t, db, sms("+4930000001", "cut"))
	// So it is of posts.
	post := func(text string) delivery.Delivery {
		return delivery.Delivery{Channel: delivery.Social, Provider: "fake", Recipient: "@us", Payload: []byte(`{"text": "` + text + `"}`), Key: delivery.NewKey("post", text)}
	}
	posted := reserve(t, db, post("answered"))
	until(t, db, posted[0].ID, delivery.Posted)
	alike = append(alike, reserve(t, db, post("cut"))...)
	if e := until(t, db, made[2].ID, delivery.Sent); e.ProviderMessageID != "SM-+4930000003" {
		t.Errorf("%+v", e)
	}
	for _, m := range append(alike, made[:2]...) {
		if e := held(t, db, m.ID); !strings.Contains(e.DoubtReason, "may be another delivery's") {
			t.Errorf("%+v", e)
		}
	}
}
