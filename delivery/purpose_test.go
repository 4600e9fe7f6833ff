package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// suppress suppresses an address as of says, and returns what has changed.
func suppress(t testing.TB, db *pgtest.DB, of delivery.Coverage, address string) int64 {
	t.Helper()
	of.Channel = delivery.Email
	n, err := delivery.Suppress(context.Background(), db.Pool(pgtest.App), nil, of, []string{address}, audit.Act{By: "ann", Reason: "asked to"})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// covers is D11: what a suppression for one purpose, for "*" or for everything keeps
// from its address.
func covers(suppressed, purpose string) bool {
	return suppressed == "" || purpose != "" && (suppressed == delivery.AnyPurpose || suppressed == purpose)
}

var purposes = []string{"", "news", "offers"}

// Whatever a suppression is for, it stops what it covers and nothing else: at the
// reservation, at the provider's door, and where what is in doubt would be repeated.
func TestContract_D11_ASuppressionStopsWhatItIsFor(t *testing.T) {
	t.Parallel()
	for _, suppressed := range append(slices.Clone(purposes), delivery.AnyPurpose) {
		for _, key := range []bool{false, true} {
			t.Run(fmt.Sprintf("%q/%t", suppressed, key), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				const early, late, meanwhile = "early", "late", "meanwhile"
				of := delivery.Coverage{Purpose: suppressed}
				at := func(when, purpose string) string { return when + purpose + "@example.com" }
				made := map[string]delivery.Reserved{}
				for _, purpose := range purposes {
					suppress(t, db, of, at(early, purpose))
					for _, when := range []string{early, late, meanwhile} {
						d := email(at(when, purpose))
						d.Purpose, d.Guarantee = purpose, delivery.AtLeastOnce
						made[when+purpose] = reserve(t, db, d)[0]
					}
					suppress(t, db, of, at(late, purpose))
					if got := made[early+purpose].Status == delivery.Skipped; got != covers(suppressed, purpose) {
						t.Errorf("%q was reserved as %s", purpose, made[early+purpose].Status)
					}
				}
				f := newFake()
				if key {
					f.withKey(time.Hour)
				}
				f.send = func(_ context.Context, n int, r delivery.Reservation) (delivery.Outcome, bool) {
					if strings.HasPrefix(r.Recipient(), meanwhile) && n == 1 {
						suppress(t, db, of, r.Recipient())
						return delivery.Unknown(errCut), false
					}
					return delivery.Accepted("m"), true
				}
				run(t, db, fast(f))
				for _, purpose := range purposes {
					for _, when := range []string{early, late, meanwhile} {
						id, want, calls := made[when+purpose].ID, delivery.Sent, 1
						if when == meanwhile {
							calls = 2
						}
						if covers(suppressed, purpose) {
							want = delivery.Skipped
							calls--
						}
						if e := until(t, db, id, want); e.Purpose != purpose || f.called(id) != calls {
							t.Errorf("%s for %q: called %d times, want %d: %+v", when, purpose, f.called(id), calls, e)
						}
					}
				}
			})
		}
	}
}

// One that is to end holds until then, and is taken away; asked for again it never
// ends earlier, and what it was for is a matter of its own.
func TestContract_D11_ASuppressionMayEnd(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	status := func(parts ...string) delivery.Status {
		t.Helper()
		return reserve(t, db, email("a@example.com", parts...))[0].Status
	}
	soft := delivery.Coverage{For: time.Hour}
	same := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	same("new", suppress(t, db, soft, "a@example.com"), int64(1))
	same("again, for less", suppress(t, db, delivery.Coverage{For: time.Minute}, "a@example.com"), int64(0))
	same("while it holds", status("1"), delivery.Skipped)
	due := func(in time.Duration, key string) delivery.Status {
		t.Helper()
		d := email("a@example.com", key)
		d.ProcessAfter = time.Now().Add(in)
		return reserve(t, db, d)[0].Status
	}
	same("due while it holds", due(30*time.Minute, "due 1"), delivery.Skipped)
	same("due when it has ended", due(2*time.Hour, "due 2"), delivery.Queued)
	if _, err := db.Pool(pgtest.App).Exec(ctx, `select deed.suppress('email', '{a@example.com}', 'x', p_expires_at => '20000-01-01Z')`); err == nil || !strings.Contains(err.Error(), "after the year 9999") {
		t.Errorf("until the year 20000: %v", err)
	}
	same("for longer", suppress(t, db, delivery.Coverage{For: 2 * time.Hour}, "a@example.com"), int64(1))
	same("for a purpose", suppress(t, db, delivery.Coverage{For: time.Hour, Purpose: "news"}, "a@example.com"), int64(1))
	db.Exec(t, pgtest.Owner, `update deed.suppressions set expires_at = clock_timestamp() - interval '1 second'`)
	same("once it has ended", status("2"), delivery.Queued)
	same("anew", suppress(t, db, soft, "A@example.com"), int64(1))
	same("held anew", status("3"), delivery.Skipped)
	db.Exec(t, pgtest.Owner, `update deed.suppressions set expires_at = clock_timestamp() - interval '1 second' where purpose = ''`)
	same("for ever", suppress(t, db, delivery.Coverage{}, "a@example.com"), int64(1))
	same("and then for less", suppress(t, db, soft, "a@example.com"), int64(0))

	run(t, db, fast(newFake()))
	eventually(t, "what has ended to be taken away", func() bool {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.suppressions`) == 1
	})
	same("for ever it holds", status("4"), delivery.Skipped)
	n, err := delivery.Unsuppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email, Purpose: "news"}, []string{"a@example.com"}, audit.Act{By: "ann", Reason: "asked to"})
	same("lifted for what it was not", n, int64(0))
	same("no error", err, nil)
	n, err = delivery.Unsuppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email}, []string{"a@example.com"}, audit.Act{By: "ann", Reason: "asked to"})
	same("lifted", n, int64(1))
	same("no error", err, nil)
	same("in the end", status("5"), delivery.Queued)
	told := pgtest.One[string](t, db.Pool(pgtest.Admin), `
		select string_agg(action || ' ' || affected, ', ' order by n) from deed.audit_log where subject_type = 'suppression'`)
	same("the audit log", told, "suppress 1, extend 1, suppress 1, extend 1, extend 1, expire 1, unsuppress 1")
}

// A purpose that is none is refused, and changes nothing.
func TestPurpose_Bad(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	for _, purpose := range []string{"*", "a b", "news\n", "ä", strings.Repeat("a", 101)} {
		d := email("a@example.com")
		d.Purpose = purpose
		db.Providers(t, "fake", "fake")
		if _, err := delivery.Reserve(ctx, db.Pool(pgtest.App), email("b@example.com"), d); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("reserve %q: %v", purpose, err)
		}
		if purpose == delivery.AnyPurpose {
			continue
		}
		of := delivery.Coverage{Channel: delivery.Email, Purpose: purpose}
		if _, err := delivery.Suppress(ctx, db.Pool(pgtest.App), nil, of, []string{"a@example.com"}, audit.Act{By: "ann", Reason: "asked to"}); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("suppress %q: %v", purpose, err)
		}
	}
	if _, err := delivery.Suppress(ctx, db.Pool(pgtest.App), nil, delivery.Coverage{Channel: delivery.Email, For: -time.Second}, []string{"a@example.com"}, audit.Act{By: "ann", Reason: "x"}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("for less than nothing: %v", err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select (select count(*) from deed.channel_outbox) + (select count(*) from deed.suppressions)`); n != 0 {
		t.Errorf("%d rows were made", n)
	}
}

// The table itself takes what is called a purpose, and nothing else.
func TestPurpose_TheTableTakesOnlyNames(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // purposes are changed by hand
	id := reserve(t, db, email("ann@example.com"))[0].ID
	long := strings.Repeat("x", 100)
	for purpose, taken := range map[string]bool{
		"": true, "news": true, "a.b_c-9": true, long: true, long + "x": false, "a b": false, "news\n": false, "\nnews": false, "ä": false, "*": false, "a/b": false,
	} {
		_, err := db.Pool(pgtest.Owner).Exec(t.Context(), `update deed.channel_outbox set purpose = $2 where id = $1::text::uuid`, id, purpose)
		if (err == nil) != taken || err != nil && !strings.Contains(err.Error(), "channel_outbox_purpose_is_named") {
			t.Errorf("%q: %v", purpose, err)
		}
	}
}
