package deed_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

const otherTenant = "11111111-1111-4111-8111-111111111111"

// lookedAt is an installation of three days, of which retention has taken away the
// first: topics that are declared and not, one that was removed and made again, two
// tenants, keys, and dead letters of each.
func lookedAt(t *testing.T) *pgtest.DB {
	db := pgtest.New(t)
	orders := subscribe(t, db, "orders", "s")
	jobs := subscribe(t, db, "jobs", "s")
	n := 0
	day := func() {
		var list []deed.Message
		for range 150 {
			n++
			m := message([]string{"orders", "orders", "jobs", "loose", "elsewhere"}[n%5], n)
			m.Type = []string{"made", "changed"}[n%2]
			if n%3 > 0 {
				m.Key = fmt.Sprint("k", n%4)
			}
			list = append(list, m)
		}
		publish(t, db, list...)
		err := pgx.BeginFunc(t.Context(), db.Pool(pgtest.App), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `select set_config('app.current_tenant_id', $1, true)`, otherTenant); err != nil {
				return err
			}
			_, err := deed.Publish(t.Context(), tx, list[:40]...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	die := func(subscription, every int) {
		// None comes to be an hour old while the test runs.
		db.Exec(t, pgtest.Owner, `
			update deed.pending set dead_at = now() - interval '10 minutes' * (id % 10) - interval '5 minutes', last_error = case when id % 2 = 0 then 'Status 503' else 'refused' end
			where subscription = $1 and id % $2 = 0 and dead_at is null`, subscription, every)
	}
	day()
	die(orders, 3)
	die(jobs, 2)
	die(0, 4)
	nextDay(t, db)
	older(t, db)
	retain(t, db, pgtest.Worker)
	day()
	remove(t, db, "orders", "")
	clearAway(t, db)
	orders = subscribe(t, db, "orders", "s")
	day()
	nextDay(t, db)
	// As if all up to here were of the days before.
	db.Exec(t, pgtest.Owner, `
		update deed.log set created_at = created_at - interval '5 hours';
		update deed.log set created_at = created_at - interval '10 hours' where id < (select avg(id) from deed.log);
		update deed.kept set created_at = created_at - interval '20 hours'`)
	day()
	die(orders, 2)
	die(jobs, 3)
	die(0, 5)
	if kept := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.kept`); kept == 0 {
		t.Fatal("retention has kept nothing")
	}
	return db
}

// pages walks through a list, a page after the other.
func pages[T any](t *testing.T, look func(cursor string) (page.Of[T], error)) (all []T) {
	t.Helper()
	cursor := ""
	for range 1000 {
		page, err := look(cursor)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
		if page.LookedTo != nil {
			t.Fatalf("a look at so few ended early, at %s: cursor %s, next %s, %d items", page.LookedTo, cursor, page.Next, len(page.Items))
		}
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
	t.Fatal("the list does not end")
	return nil
}

// Lists in pages of any size are what one statement without an index would give:
// nothing is missing, twice or out of order, whatever is asked for, and whoever asks.
func TestLook_PagesOfMessagesAreWhole(t *testing.T) {
	t.Parallel()
	db := lookedAt(t)
	other, err := tenant.Parse(otherTenant)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []pgtest.Role{pgtest.Admin, pgtest.App} {
		c, err := admin.New(t.Context(), db.Pool(role), admin.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			filter admin.Filter
			where  string
		}{
			"all":                   {admin.Filter{}, `true`},
			"a topic":               {admin.Filter{Topic: "jobs"}, `topic = 'jobs'`},
			"one that was removed":  {admin.Filter{Topic: "orders"}, `topic = 'orders'`},
			"one nobody declared":   {admin.Filter{Topic: "loose"}, `topic = 'loose'`},
			"none":                  {admin.Filter{Topic: "nothing"}, `false`},
			"a topic's key":         {admin.Filter{Topic: "orders", Key: "k1"}, `topic = 'orders' and key = 'k1'`},
			"a key":                 {admin.Filter{Key: "k2"}, `key = 'k2'`},
			"a tenant":              {admin.Filter{Tenant: &other}, `tenant_id = '` + otherTenant + `'`},
			"a tenant in a topic":   {admin.Filter{Tenant: &other, Topic: "jobs"}, `topic = 'jobs' and tenant_id = '` + otherTenant + `'`},
			"since":                 {admin.Filter{Since: time.Hour}, `created_at > now() - interval '1 hour'`},
			"since yesterday":       {admin.Filter{Since: 7 * time.Hour}, `created_at > now() - interval '7 hours'`},
			"since, of a topic":     {admin.Filter{Since: 7 * time.Hour, Topic: "jobs"}, `topic = 'jobs' and created_at > now() - interval '7 hours'`},
			"with what is in them":  {admin.Filter{Payload: true, Topic: "elsewhere"}, `topic = 'elsewhere'`},
			"a key nobody declared": {admin.Filter{Topic: "elsewhere", Key: "k3"}, `topic = 'elsewhere' and key = 'k3'`},
		} {
			want := pgtest.One[[]int64](t, db.Pool(role), `
				select coalesce(array_agg(id order by id desc), '{}')
				from (select id, topic, key, tenant_id, created_at from deed.log union all select id, topic, key, tenant_id, created_at from deed.kept) l where `+test.where)
			for _, limit := range []int{7, 100, 10000} {
				test.filter.Limit = limit
				list := pages(t, func(cursor string) (page.Of[admin.MessageRecord], error) {
					test.filter.Cursor = cursor
					return c.Messages(t.Context(), test.filter)
				})
				got := make([]int64, len(list))
				for i, m := range list {
					got[i] = m.Seq
				}
				if !slices.Equal(got, want) && len(got)+len(want) > 0 {
					t.Errorf("%s as %v, %d a page: got %d messages, want %d\n got %v\nwant %v", name, role, limit, len(got), len(want), got, want)
				}
				if test.filter.Payload && (len(list) == 0 || len(list[0].Payload) == 0 || list[0].Size != len(list[0].Payload)) {
					t.Errorf("%s: without contents", name)
				}
			}
			if role == pgtest.Admin && name == "all" && len(want) < 400 {
				t.Errorf("only %d messages to look at", len(want))
			}
		}
		for _, m := range pages(t, func(cursor string) (page.Of[admin.MessageRecord], error) {
			return c.Messages(t.Context(), admin.Filter{Limit: 50, Cursor: cursor})
		}) {
			if role == pgtest.App || m.Seq%9 > 0 {
				continue
			}
			shown, err := c.Message(t.Context(), fmt.Sprint(m.Seq), false)
			if err != nil || shown.ID != m.ID {
				t.Errorf("message %d is shown as %v, %v", m.Seq, shown.ID, err)
			}
		}
	}
	verified(t, db)
}

func TestLook_PagesOfDeadLettersAreWhole(t *testing.T) {
	t.Parallel()
	db := lookedAt(t)
	c := operator(t, db)
	other, err := tenant.Parse(otherTenant)
	if err != nil {
		t.Fatal(err)
	}
	some := pgtest.One[[]int64](t, db.Pool(pgtest.Owner), `select array_agg(id) from (select id from deed.pending where dead_at is not null order by id limit 5) p`)
	for name, test := range map[string]struct {
		filter admin.DeadFilter
		where  string
	}{
		"all":                 {admin.DeadFilter{}, `true`},
		"a topic":             {admin.DeadFilter{Topic: "jobs"}, `topic = 'jobs'`},
		"one nobody declared": {admin.DeadFilter{Topic: "loose"}, `topic = 'loose'`},
		"none":                {admin.DeadFilter{Topic: "nothing"}, `false`},
		"a subscription":      {admin.DeadFilter{Topic: "orders", Subscription: "s"}, `topic = 'orders' and name = 's'`},
		"by name alone":       {admin.DeadFilter{Subscription: "default"}, `name = 'default'`},
		"a type":              {admin.DeadFilter{Type: "made"}, `type = 'made'`},
		"a tenant":            {admin.DeadFilter{Tenant: &other}, `tenant_id = '` + otherTenant + `'`},
		"an error":            {admin.DeadFilter{Error: "status 5"}, `last_error = 'Status 503'`},
		"long ago":            {admin.DeadFilter{OlderThan: time.Hour}, `dead_at < now() - interval '1 hour'`},
		"of late":             {admin.DeadFilter{NewerThan: time.Hour, Topic: "jobs"}, `topic = 'jobs' and dead_at >= now() - interval '1 hour'`},
		"by number":           {admin.DeadFilter{Seqs: some}, fmt.Sprintf(`id = any (array%s)`, joined(some))},
	} {
		want := pgtest.One[[]string](t, db.Pool(pgtest.Admin), `
			select coalesce(array_agg(id || ' ' || topic || '/' || name order by id desc, subscription desc), '{}') from deed.dead_letters() where `+test.where)
		for _, limit := range []int{3, 100} {
			test.filter.Limit = limit
			list := pages(t, func(cursor string) (page.Of[admin.DeadMessage], error) {
				test.filter.Cursor = cursor
				return c.Dead(t.Context(), test.filter)
			})
			got := make([]string, len(list))
			for i, d := range list {
				got[i] = fmt.Sprintf("%d %s/%s", d.Seq, d.Topic, d.Subscription)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d a page: got %d dead letters, want %d\n got %v\nwant %v", name, limit, len(got), len(want), got, want)
			}
		}
	}
}

// The looks themselves, with so small a bound that each ends early: where they say
// that the next one goes on, nothing is missing or twice.
func TestLook_GoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	db := lookedAt(t)
	pool := db.Pool(pgtest.Admin)
	type row struct {
		id           *int64
		subscription *int
		at           int64
		atSub        int
	}
	for name, test := range map[string]struct {
		next string // from ($1, $2) on downwards
		want string
	}{
		"topic": {
			`select id, 0, above, 0 from deed.look_by_topic('orders', $1, 2, 1000) where $2::int >= 0`,
			`select id from deed.log where topic = 'orders'`,
		},
		"topic that nobody declared": {
			`select id, 0, above, 0 from deed.look_by_topic('loose', $1, 2, 1000, p_tenant => '` + otherTenant + `') where $2::int >= 0`,
			`select id from deed.log where topic = 'loose' and tenant_id = '` + otherTenant + `'`,
		},
		"kept": {
			`select id, 0, above, 0 from deed.look_at_kept($1, 5, 1000, 'loose') where $2::int >= 0`,
			`select id from deed.kept where topic = 'loose'`,
		},
		"dead": {
			`select id, subscription, next_id, next_subscription from deed.look_at_dead($1, $2, 5, 3, 1000, p_error => '503')`,
			`select id from deed.pending where last_error ilike '%503%'`,
		},
		"dead of a topic": {
			`select id, subscription, next_id, next_subscription from deed.look_at_dead($1, $2, 2, 3, 1000, 'jobs')`,
			`select id from deed.dead_letters('jobs')`,
		},
		"dead of one that nobody declared": {
			`select id, subscription, next_id, next_subscription from deed.look_at_dead($1, $2, 2, 3, 1000, 'loose')`,
			`select id from deed.dead_letters('loose')`,
		},
	} {
		want := pgtest.One[[]int64](t, pool, `select coalesce(array_agg(id order by id desc), '{}') from (`+test.want+`) w`)
		var got []int64
		looks := 0
		for at, atSub := int64(math.MaxInt64), math.MaxInt32; at > 0; looks++ {
			rows, err := pool.Query(t.Context(), test.next, at, atSub)
			if err != nil {
				t.Fatal(err)
			}
			found, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (f row, err error) {
				return f, r.Scan(&f.id, &f.subscription, &f.at, &f.atSub)
			})
			if err != nil || looks > 1000 {
				t.Fatalf("%s, after %d looks: %v", name, looks, err)
			}
			for _, f := range found {
				if f.id != nil {
					got = append(got, *f.id)
				}
			}
			at, atSub = found[0].at, found[0].atSub
		}
		if !slices.Equal(got, want) || looks < 3 {
			t.Errorf("%s: in %d looks got %d, want %d\n got %v\nwant %v", name, looks, len(got), len(want), got, want)
		}
	}
}

// joined writes numbers as an array of SQL has them.
func joined(list []int64) string {
	text := "["
	for i, n := range list {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(n)
	}
	return text + "]"
}

// Keys that wait, too: of a stream whose sink fails with some of them.
func TestLook_PagesOfBlockedKeysAreWhole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	sink := newStrictSink(func(m deed.Message) error {
		if strings.HasPrefix(m.Key, "bad") {
			return deed.Permanent(errors.New("never"))
		}
		return nil
	})
	c, stop := runStream(t, db, stream(sink))
	var owed []deed.Message
	for i := range 120 {
		owed = append(owed, keyed(fmt.Sprint([]string{"good", "bad"}[i%2], i%30), i))
	}
	publish(t, db, owed...)
	drained(t, c)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	want := pgtest.One[[]int64](t, db.Pool(pgtest.Admin), `select array_agg(id order by id) from deed.pending where key_hash is not null and not parked`)
	if len(want) != 15 {
		t.Fatalf("%d keys wait, want 15", len(want))
	}
	for name, f := range map[string]admin.BlockedFilter{"all": {}, "of the topic": {Topic: "orders"}, "of another": {Topic: "jobs"}} {
		for _, limit := range []int{4, 100} {
			f.Limit = limit
			got := []int64{}
			for _, k := range pages(t, func(cursor string) (page.Of[admin.BlockedKey], error) {
				f.Cursor = cursor
				return operator(t, db).BlockedKeys(t.Context(), f)
			}) {
				got = append(got, k.Seq)
				if k.Behind != 3 || k.AtLeast || !k.Dead || k.LastError != "never" {
					t.Errorf("a key that waits: %+v", k)
				}
			}
			if want := map[bool][]int64{true: {}, false: want}[f.Topic == "jobs"]; !slices.Equal(got, want) {
				t.Errorf("%s, %d a page: got %v, want %v", name, limit, got, want)
			}
		}
	}
	// With so small a bound that each look ends early.
	var got []int64
	for at, sub := int64(0), 0; ; {
		var id *int64
		if err := db.Pool(pgtest.Admin).QueryRow(t.Context(), `
			select next_id, next_subscription, id from deed.look_at_blocked($1, $2, 1, 10, 10)`, at, sub).Scan(&at, &sub, &id); err != nil {
			t.Fatal(err)
		}
		if id != nil {
			got = append(got, *id)
		}
		if at == 0 {
			break
		}
	}
	same(t, "the keys, one a look", got, want)
}

// What operators did and what they asked for come in pages, too.
func TestLook_PagesOfWhatWasDoneAreWhole(t *testing.T) {
	t.Parallel()
	db := lookedAt(t)
	c := operator(t, db)
	for i := range 12 {
		if _, err := c.Redrive(t.Context(), admin.Redrive{DeadFilter: admin.DeadFilter{Topic: "jobs", Limit: 1}, Request: fmt.Sprint("r", i), Act: audit.Act{By: "ann"}}); err != nil {
			t.Fatal(err)
		}
	}
	// A delivery that the program settled alone, as it does a probe's, and one that somebody decided about.
	db.Exec(t, pgtest.Owner, `
		insert into deed.audit_log (actor, action, subject_type, subject_id, details)
		values ('w', 'settle', 'delivery', 'd1', null), ('ann', 'settle', 'delivery', 'd1', '{"decision": "sent"}')`)
	acts := func(f admin.AuditFilter) (got []int64) {
		for _, a := range pages(t, func(cursor string) (page.Of[admin.AuditEntry], error) {
			f.Cursor, f.Limit = cursor, 3
			return c.Audit(t.Context(), f)
		}) {
			got = append(got, a.N)
		}
		return got
	}
	for where, f := range map[string]admin.AuditFilter{
		`true`: {All: true},
		`subject_type <> 'delivery' or details ? 'decision'`: {},
		`subject_id = 'd1'`:     {Subject: "d1"},
		`subject_id = 'r3'`:     {Subject: "r3"},
		`subject_id = 'orders'`: {Subject: "orders"},
		`false`:                 {Subject: "nothing"},
	} {
		want := pgtest.One[[]int64](t, db.Pool(pgtest.Admin), `select coalesce(array_agg(n order by n desc), '{}') from deed.audit_log where `+where)
		if got := acts(f); !slices.Equal(got, want) && len(got)+len(want) > 0 {
			t.Errorf("acts where %s: got %v, want %v", where, got, want)
		}
	}
	var got []string
	if _, err := c.Redrives(t.Context(), "garbage", 5); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("a cursor that is no request: %v", err)
	}
	for _, r := range pages(t, func(cursor string) (page.Of[admin.RedriveStatus], error) { return c.Redrives(t.Context(), cursor, 5) }) {
		got = append(got, r.Request)
	}
	same(t, "the requests", got, pgtest.One[[]string](t, db.Pool(pgtest.Admin), `select array_agg(request order by started_at desc, request desc) from deed.redrives`))
}

// What the program lets expire, gives up or was proved is not listed among what
// people did.
func TestAudit_LeavesOutWhatTheProgramDid(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // nothing of it has happened
	db.Exec(t, pgtest.Owner, `
		insert into deed.audit_log (actor, action, subject_type, subject_id, from_status, to_status)
		select 'worker-1', action, 'delivery', action, 'queued', 'dead' from unnest('{expire,give up,proof,retry}'::text[]) action`)
	for _, all := range []bool{false, true} {
		list, err := operator(t, db).Audit(t.Context(), admin.AuditFilter{All: all, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range list.Items {
			if a.Actor == "worker-1" {
				got = append(got, a.Action)
			}
		}
		want := []string{"retry"}
		if all {
			want = []string{"retry", "proof", "give up", "expire"}
		}
		same(t, fmt.Sprintf("listed, all %t", all), got, want)
	}
}
