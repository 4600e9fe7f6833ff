package deed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// pageOf names a row of deed.progress.
type pageOf struct {
	lane int
	page int64
}

// Of every message of a stream deed tells whether it is delivered, and by which
// page, when and by whom; also after changes of lanes, of late commits, and of
// windows that are read by number and by slot.
func TestContract_O16_StreamsTellByWhom(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	bad := func(m deed.Message) error {
		if m.Key == "bad" {
			return deed.Permanent(errors.New("never"))
		}
		return nil
	}
	opts := stream(&recorder{fail: bad}, func(o *deed.Options) { o.Worker = "w1"; o.Subscriptions[0].BatchSize = 300 })
	c, stop := runStream(t, db, opts)
	late, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Rollback(context.Background())
	var published []deed.Published
	add := func(p []deed.Published, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		published = append(published, p...)
	}
	for i := range 5 {
		add(deed.Publish(t.Context(), late, keyed(fmt.Sprint("late", i), i)))
	}
	for i := range 30 {
		add(publish(t, db, keyed(fmt.Sprint(i%7), i)), nil)
	}
	add(publish(t, db, keyed("bad", 0)), nil)
	drained(t, c)
	var many []deed.Message
	for i := range 2500 {
		many = append(many, keyed(fmt.Sprint(i%50), i))
	}
	add(publish(t, db, many...), nil)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(publish(t, db, keyed("bad", 1)), nil)
	drained(t, c)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Lanes: 3}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lanes to be changed", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.lanes`) == 3
	})
	for i := range 30 {
		add(publish(t, db, keyed(fmt.Sprint(i%7), i)), nil)
	}
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	add(publish(t, db, keyed("1", 0)), nil)

	want := map[pageOf]int{}
	rows, err := db.Pool(pgtest.Worker).Query(t.Context(), `select lane, n, messages - aside from deed.progress where messages > aside`)
	if err != nil {
		t.Fatal(err)
	}
	var p pageOf
	var count int
	if _, err := pgx.ForEachRow(rows, []any{&p.lane, &p.page, &count}, func() error { want[p] = count; return nil }); err != nil {
		t.Fatal(err)
	}
	got := map[pageOf]int{}
	rows, err = db.Pool(pgtest.Worker).Query(t.Context(), `
		select s.lane, s.page, count(*)
		from deed.log l
		cross join lateral deed.stream_states(l.id) s
		where s.state = 'delivered' and s.worker = 'w1' and s.delivered_at >= l.created_at
		group by s.lane, s.page`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.ForEachRow(rows, []any{&p.lane, &p.page, &count}, func() error { got[p] = count; return nil }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pageOf{})); diff != "" {
		t.Errorf("messages of each page (-want +got):\n%s", diff)
	}
	for name, tt := range map[string]struct {
		of   deed.Published
		want string
	}{
		"first":    {published[5], "delivered"},
		"late":     {published[0], "delivered"},
		"dead":     {published[35], "dead"},
		"parked":   {published[36+2500], "parked"},
		"not read": {published[len(published)-1], "waiting"},
	} {
		story, err := operator.Message(t.Context(), tt.of.ID.String(), false)
		if err != nil || len(story.States) != 1 || story.States[0].State != tt.want {
			t.Errorf("%s: %+v, %v; want %s", name, story.States, err, tt.want)
			continue
		}
		if s := story.States[0]; tt.want == "delivered" && (s.Worker != "w1" || s.DeliveredAt == nil || s.Page == 0 || s.Attempts != 1) {
			t.Errorf("%s: %+v", name, s)
		}
	}

	// A subscription that was added later is not owed what came before it.
	pgtest.One[int](t, db.Pool(pgtest.Worker), `select subscription from deed.subscribe('orders', 'later', 'now')`)
	for _, tt := range []struct {
		at   int
		want int
	}{{0, 1}, {len(published) - 1, 1}} {
		story, err := operator.Message(t.Context(), published[tt.at].ID.String(), false)
		if err != nil || len(story.States) != tt.want {
			t.Errorf("message %d: %+v, %v", tt.at, story.States, err)
		}
	}
}

func TestStream_Status(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := &recorder{fail: func(m deed.Message) error {
		if m.Key == "bad" {
			return deed.Permanent(errors.New("never"))
		}
		return nil
	}}
	c, stop := runStream(t, db, stream(sink, func(o *deed.Options) { o.Topics[0].Lanes = 1 }))
	for i := range 20 {
		publish(t, db, keyed("bad", i), keyed("good", i))
	}
	drained(t, c)
	status := func() admin.SubscriptionStatus {
		t.Helper()
		topics, err := operator(t, db).Status(t.Context())
		if err != nil || len(topics) != 1 || len(topics[0].Subscriptions) != 1 {
			t.Fatalf("%+v, %v", topics, err)
		}
		s := topics[0].Subscriptions[0]
		if topics[0].Counts != s.Counts {
			t.Errorf("the topic's counts %+v differ from its only subscription's %+v", topics[0].Counts, s.Counts)
		}
		return s
	}
	want := admin.SubscriptionStatus{
		Subscription: "s", Counts: admin.Counts{Pending: 19, Parked: 19, Dead: 1, Delivered: 20}, BlockedKeys: 1, Lanes: 1, LanesHeld: 1,
	}
	if diff := cmp.Diff(want, status()); diff != "" {
		t.Errorf("drained (-want +got):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var many []deed.Message
	for i := range 3 {
		many = append(many, keyed("good", i))
	}
	publish(t, db, many...)
	got := status()
	if got.OldestDue <= 0 {
		t.Errorf("the oldest is due for %s", got.OldestDue)
	}
	got.OldestDue = 0
	want.Pending, want.Due, want.Lag, want.LanesHeld = 22, 3, 3, 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("behind (-want +got):\n%s", diff)
	}
	for i := range 10000 {
		many = append(many, keyed("good", i))
	}
	publish(t, db, many...)
	if got := status(); !got.AtLeast || got.Lag != 10000 || got.Pending != 10019 {
		t.Errorf("far behind: %+v", got)
	}
	c2, stop2 := runStream(t, db, stream(sink))
	drained(t, c2)
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Lanes: 2}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lanes to be changed", func() bool { return status().Lanes == 2 })
	publish(t, db, keyed("good", 0))
	drained(t, c2)
	if got := status(); got.Delivered != 20+3+10003+1 {
		t.Errorf("delivered %d by lanes that are and those that were, want %d", got.Delivered, 20+3+10003+1)
	}
	if err := stop2(); err != nil {
		t.Fatal(err)
	}
}

// A program that asks for other settings than the stored ones is told which
// command changes them.
func TestStream_StoredSettingsDiffer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, stop := runStream(t, db, stream(&recorder{}))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*deed.Options){
		"deed topic set orders --mode queue":                       func(o *deed.Options) { o.Topics[0].Mode = deed.ModeQueue },
		"deed topic set orders --lanes 9":                          func(o *deed.Options) { o.Topics[0].Lanes = 9 },
		"deed topic set orders --ordering none":                    func(o *deed.Options) { o.Topics[0].Ordering = deed.OrderNone },
		"deed topic set orders --retention 1h0m0s":                 func(o *deed.Options) { o.Topics[0].Retention = time.Hour },
		"deed topic set orders --subscription s --backoff 2s":      func(o *deed.Options) { o.Subscriptions[0].Backoff = 2 * time.Second },
		"deed topic set orders --subscription s --max-attempts 21": func(o *deed.Options) { o.Subscriptions[0].MaxAttempts = 21 },
	} {
		c, err := deed.New(t.Context(), db.Pool(pgtest.Worker), stream(&recorder{}, change))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Run(t.Context())
		if deed.CodeOf(err) != deed.Conflict || !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// What is stored is no difference, said aloud or not.
	_, stop = runStream(t, db, stream(&recorder{}, func(o *deed.Options) {
		o.Topics[0].Lanes, o.Topics[0].Ordering, o.Topics[0].Retention = 4, deed.OrderKey, 7*24*time.Hour
		o.Subscriptions[0].Backoff = time.Second
	}))
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.SetTopic(t.Context(), "orders", admin.TopicChange{Ordering: deed.OrderNone, Retention: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := operator.SetSubscription(t.Context(), "orders", "", admin.SubscriptionChange{Backoff: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	topics, err := operator.Topics(t.Context(), "", 10)
	if err != nil || len(topics.Items) != 1 || len(topics.Items[0].Subscriptions) != 1 {
		t.Fatalf("%+v, %v", topics, err)
	}
	if got := topics.Items[0]; got.Mode != deed.ModeStream || got.Lanes != 4 || got.Ordering != deed.OrderNone || time.Duration(got.Retention) != time.Hour ||
		time.Duration(got.Subscriptions[0].Backoff) != 5*time.Millisecond {
		t.Errorf("got %+v", got)
	}
	for _, change := range []admin.TopicChange{{Mode: "heap"}, {Lanes: 65}, {Ordering: "all"}, {Retention: time.Second}} {
		if err := operator.SetTopic(t.Context(), "orders", change); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%+v: got %v", change, err)
		}
	}
	if err := operator.SetSubscription(t.Context(), "orders", "", admin.SubscriptionChange{Backoff: 2 * time.Hour}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("backoff of 2h: got %v", err)
	}
}
