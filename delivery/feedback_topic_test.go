package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// A service that hears what becomes of what it had sent.
func Example_feedback() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	client, err := deed.New(ctx, pool, deed.Options{
		Subscriptions: []deed.Subscription{
			deed.Handle(delivery.FeedbackTopic, func(_ context.Context, m deed.Received[delivery.FeedbackMessage]) error {
				if m.Value.Event == delivery.SaidBounced {
					fmt.Println("delivery", m.Value.Delivery, "bounced:", m.Value.Reason)
				}
				return nil
			}),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// told collects what a handler of deed.feedback gets.
type told struct {
	mu   sync.Mutex
	list []delivery.FeedbackMessage // guarded by mu
	text []string                   // guarded by mu
}

// listen runs a service that handles deed.feedback, as one of users' would.
func listen(t *testing.T, db *pgtest.DB) *told {
	t.Helper()
	var got told
	client, err := deed.New(t.Context(), db.Pool(pgtest.Worker), deed.Options{
		Subscriptions: []deed.Subscription{
			deed.Handle(delivery.FeedbackTopic, func(_ context.Context, m deed.Received[delivery.FeedbackMessage]) error {
				got.mu.Lock()
				defer got.mu.Unlock()
				got.list, got.text = append(got.list, m.Value), append(got.text, fmt.Sprintf("%s %s %s", m.Key, m.Type, m.Payload))
				return nil
			}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	eventually(t, "the subscription", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.topics where topic = 'deed.feedback' and subscriptions <> '{}')`)
	})
	return &got
}

func (g *told) messages() []delivery.FeedbackMessage {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]delivery.FeedbackMessage(nil), g.list...)
}

func logged(t *testing.T, db *pgtest.DB) int {
	t.Helper()
	return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.log where topic = 'deed.feedback'`)
}

// The application hears each thing when it is said first, with no address in it; nothing is
// written while nobody subscribes, and nothing of what is not recorded.
func TestContract_D13_FeedbackReachesTheApplication(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	d := email("Bob@example.com")
	d.CorrelationID, d.ChannelMessageID = "order-42", channelMessage(t, db)
	ids := sent(t, db, d, email("eve@example.com"))
	before := delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: ids[1], At: at(1)}
	record(t, l, before)
	if n := logged(t, db); n != 0 {
		t.Fatalf("%d messages, and nobody subscribes", n)
	}
	got := listen(t, db)
	soft := delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: ids[0], At: at(2), Code: "452", Reason: `<bob@EXAMPLE.com>: bob@example.com (alias of "r b"@other.example, bob%40third.example) is full`}
	copied := email("copied@example.com")
	copied.Payload = json.RawMessage(`{"subject":"hello","cc":["boss@example.com"]}`)
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: sent(t, db, copied)[0], Address: "Boss@example.com"}) // nothing about the recipient
	for range 2 {
		record(t, l, soft, before, delivery.StatusEvent{Said: delivery.SaidAccepted, Delivery: ids[0], At: at(1)}, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: "0190a2f0-0000-7000-8000-000000000000"})
		record(t, l, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: ids[0], At: at(3)}, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: ids[0], At: at(2)})
		record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: ids[0], At: at(1), Reason: "earlier, said later, and graver"})
		record(t, l, delivery.StatusEvent{Said: delivery.SaidDropped, Delivery: ids[0], At: at(1), Reason: "less grave"})
	}
	want := []delivery.FeedbackMessage{
		{Event: delivery.SaidSoftBounced, At: at(2), Code: "452", Reason: `<(address)>: (address) (alias of "r b"(address), (address)) is full`},
		{Event: delivery.SaidDelivered, At: at(2)},
		{Event: delivery.SaidBounced, At: at(1), Reason: "earlier, said later, and graver"},
		{Event: delivery.SaidComplained, At: at(3)},
	}
	for i := range want {
		want[i].Delivery, want[i].Tenant, want[i].CorrelationID, want[i].ChannelMessageID, want[i].Provider = ids[0], "00000000-0000-0000-0000-000000000000", "order-42", d.ChannelMessageID, "fake"
	}
	eventually(t, "the messages", func() bool { return len(got.messages()) >= len(want) })
	byEvent := cmpopts.SortSlices(func(a, b delivery.FeedbackMessage) bool { return a.Event < b.Event })
	if diff := cmp.Diff(want, got.messages(), byEvent); diff != "" {
		t.Error(diff)
	}
	for _, text := range got.text {
		if !strings.HasPrefix(text, ids[0]+" ") || strings.Contains(strings.ToLower(text), "bob") || strings.Contains(text, "@") {
			t.Error(text)
		}
	}
	if n := logged(t, db); n != len(want) {
		t.Errorf("%d messages in the log, want %d", n, len(want))
	}

	// What cannot be recorded is not told.
	db.Exec(t, pgtest.Owner, `alter table deed.delivery_feedback add constraint none check (clicked_at is null) not valid`)
	db.Exec(t, pgtest.Owner, `select deed.record_events('fake', 'fake', '', null, array['unsubscribed'], array['ev'], array[$1::text], array[''], array[''], array[null::timestamptz], array[''], array[''], 'w')`, ids[1])
	if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), `select deed.record_events('fake', 'fake', '', null, array['clicked'], array['ev'], array[$1::text], array[''], array[''], array[null::timestamptz], array[''], array[''], 'w')`, ids[1]); sqlState(err) != "23514" {
		t.Fatal(err)
	}
	eventually(t, "the one that was recorded", func() bool { return len(got.messages()) > len(want) })
	if n := logged(t, db); n != len(want)+1 {
		t.Errorf("%d messages in the log, want %d", n, len(want)+1)
	}
	if list := rowsOf(t, db.Pool(pgtest.Worker), `select invariant || ': ' || detail from deed.verify()`); len(list) > 0 {
		t.Errorf("deed.verify: %q", list)
	}
}

// A number is taken out of what is told however it is written.
func TestFeedbackTopic_NumbersHoweverWritten(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, test := range []struct{ text, recipient, want string }{
		{"+49 170 123-45 is gone, says 0049170 12345 of 4917012345", "+4917012345", "(address) is gone, says (address) of (address)"},
		{"+49 (170) 123/45: busy", "0049 170 12345", "(address): busy"},
		{"+4917012345 is gone", "49 170-123-45", "(address) is gone"},
		{"49170123456 and 14917012345 are others, and so is 4917012344", "+4917012345", "49170123456 and 14917012345 are others, and so is 4917012344"},
		{"user 12345678 has left, error 123", "12345678", "user (address) has left, error 123"},
		{"bob@example.com and BOB@example.com", "bob@example.com", "(address) and (address)"},
	} {
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select deed.without_addresses($1, $2)`, test.text, test.recipient); got != test.want {
			t.Errorf("%q without %q: %q, want %q", test.text, test.recipient, got, test.want)
		}
	}
}

// Of one who was erased no reason is told, and of a removed tenant nothing.
func TestContract_D12_FeedbackOfTheErased(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, stop := run(t, db, said(newFake()))
	id := sent(t, db, email("canary@example.com"))[0]
	stop()
	got := listen(t, db)
	db.Exec(t, pgtest.Owner, `select deed.erase_deliveries(array(select id from deed.channel_outbox), 'ann')`)
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: id, Reason: "canary@example.com is not here"})
	eventually(t, "the message", func() bool { return len(got.messages()) == 1 })
	if m := got.messages()[0]; m.Delivery != id || m.Reason != "" {
		t.Errorf("%+v", m)
	}
	db.Exec(t, pgtest.Owner, `insert into deed.tenant_removals (tenant_id, name, reason, actor, made_by) select tenant_id, 'left', 'left', 'ann', pg_current_xact_id() from deed.channel_outbox`)
	db.Exec(t, pgtest.Owner, `update deed.settings set removed_tenants = true`)
	record(t, l, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: id})
	if n := logged(t, db); n != 1 {
		t.Errorf("%d messages", n)
	}
}

var empty = json.RawMessage(`{}`)

// Applications publish nothing to deed's own topics, by none of the ways there are, and
// declare none; what one had declared under such a name before stays theirs.
func TestPublish_NotToDeedsOwnTopics(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	db.Exec(t, pgtest.Owner, `insert into deed.topics (topic, slot_base, list_version) select 'deed.mine', 64 * nextval('deed.topic_seq')::int, list_version from deed.settings`)
	for _, topic := range []string{"deed.feedback", "deed.other", "deed."} {
		for what, try := range map[string]func() error{
			"one": func() error {
				_, err := deed.Publish(t.Context(), app, deed.Message{Topic: topic, Payload: empty})
				return err
			},
			"many": func() error {
				_, err := deed.Publish(t.Context(), app, deed.Message{Topic: "orders", Payload: empty}, deed.Message{Topic: topic, Payload: empty})
				return err
			},
			"keyed": func() error {
				_, err := deed.Publish(t.Context(), app, deed.Message{Topic: topic, Payload: empty, IdempotencyKey: "a"})
				return err
			},
			"in SQL": func() error {
				_, err := app.Exec(t.Context(), `select deed.publish($1, '{}')`, topic)
				return deed.WrapError("publish", err)
			},
			"as the owner": func() error {
				_, err := db.Pool(pgtest.Owner).Exec(t.Context(), `select deed.publish($1, '{}')`, topic)
				return deed.WrapError("publish", err)
			},
		} {
			if err := try(); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "deed itself publishes") {
				t.Errorf("%s, %s: %v", topic, what, err)
			}
		}
	}
	admin := db.Pool(pgtest.Admin)
	for _, sql := range []string{
		`select deed.declare_topic('deed.other')`, `select deed.set_topic('deed.feedback', 'queue')`, `select deed.set_topic('deed.feedback', p_ordered => false)`,
		`select deed.remove_topic('deed.feedback', 'no need')`, `select deed.subscribe('deed.other', 'a')`,
	} {
		if _, err := admin.Exec(t.Context(), sql); sqlState(err) != "DDARG" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.log`); n != 0 {
		t.Errorf("%d messages were stored", n)
	}
	db.Exec(t, pgtest.Admin, `select deed.set_topic('deed.feedback', 'stream', 8, true, '1 day'), deed.declare_topic('deed.feedback')`)
	if _, err := deed.Publish(t.Context(), app, deed.Message{Topic: "deed.mine", Payload: empty}); err != nil {
		t.Error(err)
	}
	if _, err := deed.Publish(t.Context(), app, deed.Message{Topic: "deed.mine", Payload: empty, IdempotencyKey: "a"}, deed.Message{Topic: "deedfeedback", Payload: empty}); err != nil {
		t.Error(err)
	}
}

// Who had a topic of that name keeps it, and hears nothing there; once they have removed
// it, it is deed's.
func TestFeedbackTopic_WasSomebodys(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	id := sent(t, db, email("a@example.com"))[0]
	db.Exec(t, pgtest.Owner, `update deed.topics set own = false, mode = 'queue' where topic = 'deed.feedback'`)
	db.Exec(t, pgtest.Admin, `select deed.subscribe('deed.feedback', 'mine')`)
	if _, err := deed.Publish(t.Context(), db.Pool(pgtest.App), deed.Message{Topic: "deed.feedback", Payload: empty}); err != nil {
		t.Fatal(err)
	}
	record(t, l, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: id})
	if n := logged(t, db); n != 1 {
		t.Errorf("%d messages, want the one that was published", n)
	}
	db.Exec(t, pgtest.Admin, `select deed.remove_topic('deed.feedback', 'taken')`)
	listen(t, db)
	record(t, l, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: id})
	if own := pgtest.One[string](t, db.Pool(pgtest.Owner), `select mode || own from deed.topics where topic = 'deed.feedback'`); own != "streamtrue" {
		t.Error(own)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.log where type = 'complained'`); n != 1 {
		t.Errorf("%d messages", n)
	}
}
