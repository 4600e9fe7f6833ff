package deed_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/internal/pgtest"
)

// stranded leaves a stream of which the first message of the key "k" has failed
// and two more stand behind it, with nobody reading.
func stranded(t *testing.T) (db *pgtest.DB, opts deed.Options, first deed.Published) {
	t.Helper()
	db = pgtest.New(t)
	opts = stream(&recorder{fail: func(m deed.Message) error {
		if string(m.Payload) == `{"n":1}` {
			return deed.AfterError(time.Hour, errors.New("not yet"))
		}
		return nil
	}})
	_, stop := runStream(t, db, opts)
	first = publish(t, db, keyed("k", 1))[0]
	publish(t, db, keyed("k", 2), keyed("k", 3), keyed("other", 4))
	eventuallyWithin(t, 2*time.Minute, "three messages to be aside", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select coalesce(sum(messages) = 4 and sum(aside) = 3, false) from deed.progress`)
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	return db, opts, first
}

// invariants are the names of what deed.verify finds.
func invariants(t *testing.T, db *pgtest.DB) []string {
	t.Helper()
	return texts(t, db, `select distinct invariant from deed.verify() order by 1`)
}

func TestVerify_AMessagePutAsideIsNotLostUnseen(t *testing.T) {
	t.Parallel()
	db, _, first := stranded(t)
	db.Broken()
	same(t, "before", invariants(t, db), []string{})
	db.Exec(t, pgtest.Owner, `delete from deed.pending where id = $1`, first.Seq)
	if got := invariants(t, db); !slices.Contains(got, "message put aside is lost") {
		t.Errorf("verify finds %q", got)
	}
	operator, err := admin.New(t.Context(), db.Pool(pgtest.Admin), admin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	story, err := operator.Message(t.Context(), first.ID.String(), false)
	if err != nil || len(story.States) != 1 || story.States[0].State != "lost" || story.States[0].DeliveredAt != nil {
		t.Errorf("%+v, %v", story.States, err)
	}
}

// A key whose messages are parked behind nothing is found, and whoever takes
// its lane lets it go on.
func TestVerify_AStrandedKeyIsFoundAndFreed(t *testing.T) {
	t.Parallel()
	db, opts, first := stranded(t)
	db.Broken()
	db.Exec(t, pgtest.Owner, `delete from deed.pending where id = $1`, first.Seq)
	if got := invariants(t, db); !slices.Contains(got, "parked behind nothing") {
		t.Errorf("verify finds %q", got)
	}
	runStream(t, db, opts)
	eventually(t, "the others of the key to be delivered", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.pending`) == 0
	})
	same(t, "what is left", invariants(t, db), []string{"message put aside is lost"})
}

// A lane that is said to have read more, and another less, do not make up for
// each other; nor do two pages of one lane.
func TestVerify_ChangesOfRecordsDoNotCompensate(t *testing.T) {
	t.Parallel()
	db, _, _ := stranded(t)
	db.Broken()
	for name, change := range map[string]string{
		"two lanes": `
			update deed.progress g set messages = messages + c.more, total = total + c.more
			from (
				select ctid as place, case when row_number() over (order by lane) = 1 then 1 else -1 end as more
				from (select distinct on (lane) ctid, lane, messages from deed.progress where messages > aside or messages = 0 and n > 0 order by lane, n desc) l
				order by lane limit 2
			) c
			where g.ctid = c.place`,
		"a message gone past": `
			update deed.progress g set from_window = (select max(n) from deed.windows), to_window = null
			where g.n = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			tag, err := tx.Exec(t.Context(), change)
			if err != nil || tag.RowsAffected() == 0 {
				t.Fatalf("%v, %v", tag, err)
			}
			if n := pgtest.One[int](t, tx, `select count(*) from deed.verify()`); n == 0 {
				t.Error("verify finds nothing")
			}
		})
	}
}

// In another cluster transaction ids begin anew: what is published there before
// a relay has opened a window is no loss.
func TestVerify_NoFalseAlarmAfterARestore(t *testing.T) {
	t.Parallel()
	db, opts, _ := stranded(t)
	inAnotherCluster(t, db)
	same(t, "restored", invariants(t, db), []string{})
	publish(t, db, keyed("other", 5), keyed("another", 6))
	same(t, "published there", invariants(t, db), []string{})
	_, stop := runStream(t, db, opts)
	eventually(t, "the relay to have read it", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Worker), `select behind = 0 from deed.lag(array(select id from deed.subscriptions where topic = 'orders'), 1)`)
	})
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	same(t, "read", invariants(t, db), []string{})
}

// inAnotherCluster makes all that is there look as if another cluster, with higher
// transaction ids, had written it.
func inAnotherCluster(t *testing.T, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		create function public.ahead(x xid8) returns xid8 language sql return ((x::text)::bigint + 1000000000)::text::xid8;
		create function public.ahead(s pg_snapshot) returns pg_snapshot language sql return (
			public.ahead(pg_snapshot_xmin(s))::text || ':' || public.ahead(pg_snapshot_xmax(s))::text || ':'
			|| coalesce((select string_agg(public.ahead(x)::text, ',' order by x) from pg_snapshot_xip(s) x), ''))::pg_snapshot;
		update deed.log set xid = public.ahead(xid);
		update deed.windows set system_identifier = system_identifier - 1, h = public.ahead(h), cur = public.ahead(cur) where n > 0;
		update deed.windows set system_identifier = system_identifier - 1 where n = 0;
		update deed.backfills set seen = public.ahead(seen), upto = public.ahead(upto), made_by = public.ahead(made_by)`)
}
