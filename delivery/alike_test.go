package delivery_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

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

// Nor is it, where one that was put back or is dead while it was in doubt may have it: one that was called at about the same
// time, or, of a provider whose calls are repeated, within the hour before.
func TestContract_D5_AMessageOfWhatWasPutBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spent, keyed bool
		before       string
		ours         bool
	}{
		"dead":                  {spent: true, before: "0"},
		"put back":              {before: "0"},
		"long before":           {spent: true, before: "20 minutes", ours: true},
		"long before, by a key": {spent: true, before: "20 minutes", keyed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			owner := db.Pool(pgtest.Owner)
			f := &finder{fake: newFake(), n: map[string]int{}}
			f.caps.SettleDelay = time.Hour // each is looked for when the test says so
			f.fake.send = func(context.Context, int, delivery.Reservation) (delivery.Outcome, bool) {
				return delivery.Unknown(errCut), true
			}
			f.find = func(_ int, r delivery.Reservation) (delivery.Finding, error) {
				request, err := r.Request()
				return delivery.Finding{Found: strings.Contains(string(request), "second"), MessageID: "SM-1", Alike: true}, err
			}
			sms := func(text string) delivery.Delivery {
				return delivery.Delivery{Channel: delivery.SMS, Provider: "fake", Recipient: "+4930000001", Payload: []byte(`{"text": "` + text + `"}`), Key: delivery.NewKey(text)}
			}
			opts := fast(f)
			opts.BaseRetry = time.Hour // what is put back stays so
			run(t, db, opts)
			looked := func(id string) {
				t.Helper()
				eventually(t, "the doubt", func() bool {
					return pgtest.One[bool](t, owner, `select doubt_since is not null and lease_until is null from deed.channel_outbox where id = $1::text::uuid`, id)
				})
				db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null, repeat_safe_until = case when $2::boolean then clock_timestamp() end where id = $1::text::uuid`, id, c.keyed)
			}
			first := sms("first")
			first.Guarantee = delivery.AtLeastOnce
			if c.spent {
				first.MaxAttempts = 1
			}
			id := reserve(t, db, first)[0].ID
			looked(id)
			eventually(t, "it to be put back, or dead", func() bool {
				return pgtest.One[bool](t, owner, `select status <> 'sending' from deed.channel_outbox where id = $1::text::uuid`, id)
			})
			db.Exec(t, pgtest.Owner, `update deed.channel_outbox set called_at = called_at - $1::text::interval, first_called_at = first_called_at - $1::text::interval`, c.before)
			id = reserve(t, db, sms("second"))[0].ID
			looked(id)
			if c.ours {
				until(t, db, id, delivery.Sent)
			} else if e := held(t, db, id); !strings.Contains(e.DoubtReason, "may be another delivery's") {
				t.Errorf("%+v", e)
			}
		})
	}
}
