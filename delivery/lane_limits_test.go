package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// chat is a delivery to a chat of the provider fake.
func chat(to string, parts ...string) delivery.Delivery {
	d := email(to, parts...)
	d.Channel = delivery.Chat
	return d
}

// registered makes the provider fake known, with its lanes and limits.
func registered(t testing.TB, db *pgtest.DB, opts delivery.Options) {
	t.Helper()
	if err := ledger(t, db, opts).Register(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func laneOf(t testing.TB, db *pgtest.DB, id string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select lane from deed.channel_outbox where id = $1::text::uuid`, id)
}

// A delivery's lane is what the adapter says that lanes are, and nobody's address.
func TestLanes_AreWhatTheAdapterSays(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	keyed := regexp.MustCompile(`^-?[0-9a-f]{20}$`)
	for kind, want := range map[delivery.LaneKind][4]string{
		"":                        {"example.org", "hooks.example.com", "", ""},
		delivery.LanePerDomain:    {"example.org", "hooks.example.com", "", ""},
		delivery.LanePerHost:      {"example.org", "hooks.example.com", "", ""},
		delivery.LanePerCountry:   {"", "", "+44", ""},
		delivery.LanePerRecipient: {"4c6532bdd7a5f44c", "18e38f42fefeb43b", "8fab35a1d82bc9b8", "-57b5e5f5ca0a8f31"}, // SHA-256
		delivery.OneLane:          {"", "", "", ""},
	} {
		f := newFake()
		f.caps.Lanes = kind
		registered(t, db, fast(f))
		text, hook := email("+44 7911 123456", string(kind)), email("https://Hooks.example.com/x", string(kind))
		text.Channel, hook.Channel = delivery.SMS, delivery.Webhook
		made := reserve(t, db, email("Bob@example.org", string(kind)), hook, text, chat("-100123", string(kind)))
		for i, want := range want {
			got := laneOf(t, db, made[i].ID)
			if kind == delivery.LanePerRecipient {
				// By a key, without which nobody finds out whose it is.
				if !keyed.MatchString(got) || (i == 3) != (got[0] == '-') || strings.HasPrefix(got, want) {
					t.Errorf("%s: the lane of the recipient %d is %q", kind, i, got)
				}
				continue
			}
			if got != want {
				t.Errorf("%s: the lane of the recipient %d is %q, want %q", kind, i, got, want)
			}
		}
	}
	for number, want := range map[string]string{
		"+12125550100": "+1", "+18685550100": "+1", "+77012345678": "+7", "+4915112345678": "+49", "+420601123456": "+420", "+35312345678": "+353",
		"+2348031234567": "+234", "+201001234567": "+20", "+8613800138000": "+86", "+85212345678": "+852", "+971501234567": "+971", "+998901234567": "+998",
		"4915112345678": "", "+0123456": "",
	} {
		if got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(deed.lane_of('country', 'sms', $1::text), '')`, number); got != want {
			t.Errorf("%s is of the country %q, want %q", number, got, want)
		}
	}
}

// What is queued goes to other lanes when the adapter comes to have them, once.
func TestLanes_AreMovedWhenTheyAreOthers(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	registered(t, db, fast(f))
	made := reserve(t, db, chat("1"), chat("2"), email("a@example.org"))
	move := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.relane_deliveries('fake', 2)`)
	}
	f.caps.Lanes = delivery.LanePerRecipient
	registered(t, db, fast(f))
	if a, b, c := move(), move(), move(); a != 2 || b != 1 || c != 0 {
		t.Errorf("moved %d, %d and %d, want 2, 1 and none", a, b, c)
	}
	lanes := map[string]bool{}
	for _, m := range made {
		lanes[laneOf(t, db, m.ID)] = true
	}
	if lanes[""] || lanes["example.org"] || len(lanes) != 3 {
		t.Errorf("the lanes are %v", lanes)
	}
	f.caps.Lanes = delivery.LanePerDomain
	registered(t, db, fast(f))
	if n := move() + move(); n != 3 || laneOf(t, db, made[2].ID) != "example.org" {
		t.Errorf("moved %d back, one to %q", n, laneOf(t, db, made[2].ID))
	}
}

// Who is held is moved later, and what is retried goes to the lane that it has by now; until
// then what its chat says pauses nobody else.
func TestLanes_NobodyStaysBehind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	f := newFake()
	f.caps.Lanes = delivery.OneLane
	registered(t, db, fast(f))
	made := reserve(t, db, chat("dead"), chat("held"), chat("free"))
	db.Exec(t, pgtest.Owner, `
		with ended as (update deed.channel_outbox set status = 'dead', finished_at = now() where id = $1::text::uuid returning tenant_id, id)
		insert into deed.audit_log (tenant_id, actor, action, subject_type, subject_id, from_status, to_status, affected)
		select tenant_id, 'w', 'settle', 'delivery', id::text, 'queued', 'dead', 1 from ended`, made[0].ID)
	f.caps.Lanes = delivery.LanePerRecipient
	registered(t, db, fast(f))
	tx, err := owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from deed.channel_outbox where id = $1::text::uuid for update`, made[1].ID); err != nil {
		t.Fatal(err)
	}
	move := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.relane_deliveries('fake', 100)`)
	}
	if n := move(); n != 1 || laneOf(t, db, made[1].ID) != "" {
		t.Errorf("%d were moved beside one that is held", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, b := move(), move(); a != 1 || b != 0 || laneOf(t, db, made[1].ID) == "" {
		t.Errorf("%d and %d were moved, of whom one had been held", a, b)
	}
	if again := pgtest.One[bool](t, owner, `select relane from deed.providers`); again {
		t.Error("it is looked for more, and none is left")
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Admin), `select deed.retry_deliveries(array[$1::text::uuid], 'again', 'ann')::int`, made[0].ID); n != 1 || laneOf(t, db, made[0].ID) == "" {
		t.Errorf("%d retried, in the lane %q", n, laneOf(t, db, made[0].ID))
	}

	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lane = '' where id = $1::text::uuid`, made[1].ID)
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "held" {
			return delivery.LaneOutage(errors.New("429"), time.Hour), false
		}
		return delivery.Accepted("m"), true
	}
	run(t, db, fast(f))
	eventually(t, "the others", func() bool {
		return pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where status = 'sent'`) == 2 &&
			pgtest.One[bool](t, owner, `select status = 'queued' and deferrals > 0 from deed.channel_outbox where id = $1::text::uuid`, made[1].ID)
	})
	if n := pgtest.One[int](t, owner, `select count(*) from deed.pauses`); n != 0 {
		t.Errorf("%d pauses, since one delivery has no lane", n)
	}
}

// A claim that wants a lane's own limit has those of all lanes before it, as who registers the
// provider does: the other way round they would wait for each other.
func TestClaim_LocksLimitsInOneOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.caps.Lanes, f.caps.Limits = delivery.LanePerRecipient, map[string]float64{"*": 100, "7": 100}
	registered(t, db, fast(f))
	reserve(t, db, chat("7"))
	tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from deed.rate_limits where lane = '*' for update`); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() {
		_, err := db.Pool(pgtest.Worker).Exec(context.Background(), `select deed.claim_deliveries('fake', 'w', 10, '1 minute')`)
		claimed <- err
	}()
	eventually(t, "the claim that waits", func() bool {
		select {
		case err := <-claimed:
			t.Fatalf("it claimed beside who holds the limits of all lanes: %v", err)
		default:
		}
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like '%claim_deliveries%' and pid <> pg_backend_pid())`)
	})
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from (select from deed.rate_limits where lane <> '*' for update skip locked) q`); n != 1 {
		t.Error("it holds the lane's own limit while it waits")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-claimed; err != nil {
		t.Error(err)
	}
}

// A limit of what is no lane is nobody's, and not the provider's own.
func TestRegister_LimitsAreOfLanes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []struct {
		kind  delivery.LaneKind
		lanes map[string]float64
		says  string
	}{
		{delivery.LanePerRecipient, map[string]float64{"*": 1, "+44": 5}, "'+44'"},
		{delivery.LanePerRecipient, map[string]float64{"123/1": 1, "123/2": 5}, "two limits"},
		{delivery.LanePerCountry, map[string]float64{"44": 5}, "'44'"},
		{delivery.LanePerDomain, map[string]float64{"A.example": 1, "a.example": 5}, "two limits"},
	} {
		f := newFake()
		f.caps.Lanes, f.caps.Limits = c.kind, c.lanes
		if err := ledger(t, db, fast(f)).Register(context.Background()); deed.CodeOf(err) != deed.Invalid || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%v: %v", c.lanes, err)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.rate_limits where provider = 'fake'`); n != 0 {
		t.Errorf("%d limits are stored", n)
	}
}

// mostWithin is the most calls that match within a stretch of time.
func mostWithin(calls []call, stretch time.Duration, matches func(call) bool) (most int) {
	for i := range calls {
		n := 0
		for _, c := range calls[i:] {
			if matches(c) && c.at.Sub(calls[i].at) < stretch {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// overLimit says at which call there were more than a limit allows whose bucket was full when nothing was reserved yet, and which
// has had something to do ever since; "" at none. A call may be made long after it was paid for, and others in time: so it looks
// at all since the beginning, and at no stretch by itself.
func overLimit(calls []call, begun time.Time, rate, burst float64, matches func(call) bool) string {
	n := 0
	for _, c := range calls {
		if !matches(c) {
			continue
		}
		n++
		passed := c.at.Sub(begun)
		if float64(n) > burst+rate*passed.Seconds()+1 {
			return fmt.Sprintf("%d calls within %s, where %g at once and %g a second are allowed", n, passed, burst, rate)
		}
	}
	return ""
}

// What the adapter says that each lane takes holds for all processes together, for first
// calls and for the repeats of doubts, of lanes that nobody has named; those that one
// has named, and groups, have limits of their own, and none slows another.
func TestDispatch_ALimitOfEachLane(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(time.Hour)
	f.caps.Lanes, f.caps.Limits = delivery.LanePerRecipient, map[string]float64{"*": 4, "-*": 1}
	var mu sync.Mutex
	firsts := map[string]int{} // guarded by mu: first calls, by chat
	f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
		mu.Lock()
		defer mu.Unlock()
		if to := r.Recipient(); n == 1 && to[0] != 'f' {
			// Of every third the answer is lost. If it were of each, the provider would have failed as soon as no repeat came between some, and would be
			// tried again and again by a first call alone.
			if firsts[to]++; firsts[to]%3 == 1 {
				return delivery.Unknown(errors.New("500")), true
			}
		}
		return delivery.Accepted("m"), true
	}
	opts := fast(f)
	opts.Providers["fake"] = delivery.ProviderOptions{Provider: f, Lanes: map[string]float64{"named": 8}, Concurrency: 32}
	for range 3 {
		run(t, db, opts)
	}
	eventually(t, "the registration", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.rate_limits`) == 3
	})
	var list []delivery.Delivery
	for i := range 60 {
		list = append(list, chat("one", fmt.Sprint(i)), chat("two", fmt.Sprint(i)), chat("named", fmt.Sprint(i)), chat("-100", fmt.Sprint(i)))
	}
	for i := range 200 {
		list = append(list, chat(fmt.Sprintf("free%d", i)))
	}
	begun := time.Now()
	made := reserve(t, db, list...)
	until(t, db, made[len(made)-1].ID, delivery.Sent)
	eventually(t, "the others", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where recipient like 'free%' and status = 'sent'`) == 200
	})
	t.Logf("200 others took %s", time.Since(begun))
	counted := func(calls []call, to string) (n, repeats int) {
		seen := map[string]bool{}
		for _, c := range calls {
			if c.recipient == to {
				n++
				if seen[c.id] {
					repeats++
				}
				seen[c.id] = true
			}
		}
		return n, repeats
	}
	rates := map[string]float64{"one": 4, "two": 4, "named": 8, "-100": 1}
	eventually(t, "eight seconds of calls, some of each and repeats", func() bool {
		calls := f.all()
		for to := range rates {
			if n, repeats := counted(calls, to); n < 3 || to != "-100" && repeats == 0 {
				return false
			}
		}
		return time.Since(begun) > 8*time.Second
	})
	calls := f.all()
	for to, rate := range rates {
		n, repeats := counted(calls, to)
		t.Logf("%s: %d calls, %d of them repeats", to, n, repeats)
		if over := overLimit(calls, begun, rate, max(1, rate/2), func(c call) bool { return c.recipient == to }); over != "" {
			t.Errorf("%s: %s", to, over)
		}
	}
}

// What is full of the lanes' buckets is forgotten, and what is not is kept.
func TestLanes_FullBucketsAreForgotten(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.caps.Lanes, f.caps.Limits = delivery.LanePerRecipient, map[string]float64{"*": 0.001, "-*": 1000}
	registered(t, db, fast(f))
	reserve(t, db, chat("1"), chat("2"), chat("-1"))
	worker := db.Pool(pgtest.Worker)
	if n := pgtest.One[int](t, worker, `select count(*) from deed.claim_deliveries('fake', 'w', 10, '1 minute')`); n != 3 {
		t.Fatalf("claimed %d", n)
	}
	if n := pgtest.One[int](t, worker, `select count(*) from deed.lane_tokens`); n != 3 {
		t.Errorf("%d buckets of lanes, want 3", n)
	}
	eventually(t, "the full one to be forgotten", func() bool {
		return pgtest.One[int](t, worker, `select deed.forget_lanes('fake', 10)`) == 1
	})
	if n := pgtest.One[int](t, worker, `select count(*) from deed.lane_tokens where tokens < 1`); n != 2 {
		t.Errorf("%d buckets are left, want 2", n)
	}
	f.caps.Limits = nil
	registered(t, db, fast(f))
	if n := pgtest.One[int](t, worker, `select deed.forget_lanes('fake', 10)`); n != 2 {
		t.Errorf("forgot %d of lanes that have no limit any more, want 2", n)
	}
}

// A chat that takes no more for a while is left alone, and no other.
func TestContract_D6_ALaneThatIsAwayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake()
	f.caps.Lanes = delivery.LanePerRecipient
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "busy" {
			return delivery.LaneOutage(errors.New("429"), time.Hour), false
		}
		return delivery.Accepted("m"), true
	}
	registered(t, db, fast(f))
	list := []delivery.Delivery{chat("busy", "1"), chat("busy", "2"), chat("busy", "3")}
	for i := range 100 {
		list = append(list, chat(fmt.Sprint(i)))
	}
	made := reserve(t, db, list...)
	begun := time.Now()
	l, _ := run(t, db, fast(f))
	eventually(t, "the others", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where status = 'sent'`) == 100
	})
	t.Logf("100 others took %s", time.Since(begun))
	eventually(t, "the pause", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.pauses where destination <> '' and until > now() + interval '50 minutes'`) == 1
	})
	calls := 0
	for _, m := range made[:3] {
		calls += f.called(m.ID)
		if e := entry(t, db, m.ID); e.Status != delivery.Queued || e.Attempts != 0 {
			t.Errorf("it is %s after %d attempts", e.Status, e.Attempts)
		}
	}
	if calls != 1 {
		t.Errorf("the busy chat was called %d times, want once", calls)
	}
	list2, err := l.Providers(context.Background())
	if err != nil || len(list2) != 1 || len(list2[0].Pauses) != 1 || list2[0].Pauses[0].Why != "429" {
		t.Errorf("%+v, %v", list2, err)
	}
}
