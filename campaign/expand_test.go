package campaign_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgembed"
	"github.com/deedhq/deed/internal/pgtest"
)

// Keys are those of D2, whichever of the two makes them, and again makes none twice.
func TestContract_D2_KeysOfRuns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	at := time.Now().Add(-time.Minute).UTC().Truncate(time.Microsecond)
	for channel, content := range map[campaign.Channel]campaign.Content{
		campaign.Email: spring, campaign.Voice: {Script: "hello", ScriptVersion: "v7"}, campaign.Social: {Text: "hello", Post: "p1"},
		campaign.SMS: {Asset: "a", Text: "hello"}, campaign.Chat: {Asset: "a", Text: "hello"},
	} {
		req := campaign.Request{
			Campaign: put(t, db, string(channel), content).ID, Audience: people(t, db, string(channel), channel, 3).ID,
			ID: "1", Channel: channel, Provider: "fake", Transactional: true, From: "shop@example.com", ScheduledFor: at,
		}
		run := deploy(t, db, req)
		expandAll(t, db)
		rows, err := db.Pool(pgtest.Owner).Query(t.Context(), `select contact_id::text, recipient, encode(idempotency_key, 'hex') from deed.channel_outbox where run_id = $1::text::uuid and status = 'queued'`, run)
		if err != nil {
			t.Fatal(err)
		}
		type item struct{ contact, address, key string }
		items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (i item, err error) {
			return i, row.Scan(&i.contact, &i.address, &i.key)
		})
		if err != nil || len(items) != 3 {
			t.Fatal(len(items), err)
		}
		for _, i := range items {
			key := map[campaign.Channel]delivery.Key{
				campaign.Email: delivery.EmailKey(run, i.contact, "spring", at), campaign.Voice: delivery.VoiceKey(run, i.contact, "v7", at),
				campaign.Social: delivery.SocialKey(run, "p1", i.address, at), campaign.SMS: delivery.NewKey(run, i.contact, "a", at.Format("2006-01-02T15:04:05.000000Z"), "sms"),
				campaign.Chat: delivery.NewKey(run, i.contact, "a", at.Format("2006-01-02T15:04:05.000000Z"), "chat"),
			}[channel]
			want(t, "key of "+string(channel), i.key, key.String())
		}
		// Expanded again, as after a crash whose answer was lost.
		db.Exec(t, pgtest.Owner, fmt.Sprintf(`alter table deed.job_queue disable trigger user;
			update deed.job_queue set expanded_at = null, claim = 7, claimed_by = 'w', lease_until = now() + interval '1 minute' where run_id = '%s'; alter table deed.job_queue enable trigger user`, run))
		db.Exec(t, pgtest.Worker, `select deed.expand_job(j.id, 7, 'w') from deed.job_queue j where j.run_id = $1::text::uuid`, run)
		want(t, "deliveries after it was expanded again", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox where run_id = $1::text::uuid`, run), 3)
	}
}

// contactOf is the contact of a request's nth member.
func contactOf(t testing.TB, db *pgtest.DB, req campaign.Request, n int) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.audience_members where n = $1 and audience_id = $2::text::uuid`, n, req.Audience)
}

// merge has the contact of one member be another's.
func merge(t testing.TB, db *pgtest.DB, req campaign.Request, n, into int) {
	t.Helper()
	db.Exec(t, pgtest.App, `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'the same')`, contactOf(t, db, req, n), contactOf(t, db, req, into))
}

// fates says of each of a request's members who has a delivery of a run what became of it, in order.
func fates(t testing.TB, db *pgtest.DB, req campaign.Request, run string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(m.n || ' ' || coalesce(c.skip_reason, c.status), ', ' order by m.n)
		from deed.audience_members m join deed.channel_outbox c on c.contact_id = m.contact_id and c.run_id = $1::text::uuid where m.audience_id = $2::text::uuid`, run, req.Audience)
}

// Each member has a row, and who is not written to one that says why.
func TestContract_C4_ARowForEachMember(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 8)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'asked', 'w')`, address(campaign.Email, 0))
	db.Exec(t, pgtest.App, `select deed.erase_contact($1::text::uuid, 'they asked')`, contactOf(t, db, req, 2))
	merge(t, db, req, 3, 4)
	db.Exec(t, pgtest.App, `select deed.set_consents(array[$1::text::uuid], '{email}', '{newsletter}', '{revoked}', '{test}')`, contactOf(t, db, req, 5))
	run := deploy(t, db, req)
	expandAll(t, db)
	want(t, "the members", fates(t, db, req, run),
		"1 suppressed: asked, 2 erased, 3 merged, 4 queued, 5 suppressed: consent revoked, 6 queued, 7 queued, 8 queued")

	req.ID, req.NeedsConsent = "2", true
	db.Exec(t, pgtest.App, `select deed.set_consents(array[$1::text::uuid], '{email}', '{newsletter}', '{granted}', '{test}')`, contactOf(t, db, req, 8))
	run = deploy(t, db, req)
	expandAll(t, db)
	want(t, "those who have consented", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(distinct coalesce(skip_reason, status), ', ') from deed.channel_outbox where run_id = $1::text::uuid and recipient in ($2, $3)`, run, address(campaign.Email, 6), address(campaign.Email, 7)),
		"no consent, queued")
}

// Of names of one contact the one that is merged into gets it or, where that one is suppressed or has no address, the
// first of the others that can: somebody of several addresses is not left out because of one of them.
func TestContract_C4_MergedIsWhoIsReachedByAnotherName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		into     int   // of members 1 to 3
		gone     []int // suppressed
		unnamed  int   // has no address; 0: none
		anything bool  // is suppressed, and not the newsletter alone
		want     string
	}{
		"all can be reached":            {into: 3, want: "1 merged, 2 merged, 3 queued"},
		"the one itself cannot":         {into: 3, gone: []int{3}, anything: true, want: "1 queued, 2 merged, 3 suppressed"},
		"it has left the newsletter":    {into: 1, gone: []int{1}, want: "1 suppressed, 2 queued, 3 merged"},
		"nor can the first of others":   {into: 3, gone: []int{1, 3}, anything: true, want: "1 suppressed, 2 queued, 3 suppressed"},
		"another cannot":                {into: 2, gone: []int{1}, anything: true, want: "1 merged, 2 queued, 3 merged"},
		"nobody can":                    {into: 2, gone: []int{1, 2, 3}, anything: true, want: "1 suppressed, 2 suppressed, 3 suppressed"},
		"the one itself has no address": {into: 1, unnamed: 1, want: "1 no address, 2 queued, 3 merged"},
		"nor can one of the others":     {into: 1, unnamed: 1, gone: []int{2}, anything: true, want: "1 no address, 2 suppressed, 3 queued"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := request(t, db, 3)
			for n := 1; n <= 3; n++ {
				if n != c.into {
					merge(t, db, req, n, c.into)
				}
			}
			for _, n := range c.gone {
				db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'asked', 'w', p_purpose => $2)`, address(campaign.Email, n-1), map[bool]string{true: "", false: "newsletter"}[c.anything])
			}
			if c.unnamed > 0 {
				db.Exec(t, pgtest.Owner, fmt.Sprintf(`alter table deed.audience_members disable trigger user; update deed.audience_members set address = null where n = %d; alter table deed.audience_members enable trigger user`, c.unnamed))
			}
			run := deploy(t, db, req)
			expandAll(t, db)
			want(t, "the three", pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select string_agg(m.n || ' ' || split_part(coalesce(c.skip_reason, c.status), ':', 1), ', ' order by m.n)
				from deed.audience_members m join deed.channel_outbox c on c.contact_id = m.contact_id and c.run_id = $1::text::uuid`, run), c.want)
		})
	}
}

// Who is passed over since the local time of one of their names is over is not reached by that one, and gets it by another.
func TestExpand_MergedWhereOneHasPassed(t *testing.T) {
	t.Parallel()
	const ahead, behind = "Etc/GMT-3", "Etc/GMT+3" // by three hours of UTC
	for name, c := range map[string]struct {
		zones        [2]string
		merged, into int
		want         string
	}{
		"the one itself": {[2]string{ahead, behind}, 2, 1, "1 passed, 2 queued, 3 queued"},
		"the other":      {[2]string{ahead, behind}, 1, 2, "1 merged, 2 queued, 3 queued"},
		"both":           {[2]string{ahead, ahead}, 2, 1, "1 passed, 2 passed, 3 queued"},
		"neither":        {[2]string{behind, behind}, 2, 1, "1 queued, 2 merged, 3 queued"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := zoned(t, db, c.zones[0], c.zones[1], behind) // of the third the time is not over: else the run is refused
			req.LocalTime, req.IfPassed = time.Now().UTC().Format("2006-01-02T15:04:05"), campaign.Skip
			merge(t, db, req, c.merged, c.into)
			run := deploy(t, db, req)
			db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now()`)
			expandAll(t, db)
			want(t, "the two", fates(t, db, req, run), c.want)
		})
	}
}

// Who is written to by no name whose time is long over gets it by another one, whose time is not.
func TestExpand_MergedWhereOneHasExpired(t *testing.T) {
	t.Parallel()
	const ahead, behind = "Etc/GMT-3", "Etc/GMT+3" // by three hours of UTC
	for name, c := range map[string]struct {
		zones        [2]string
		merged, into int
		want         string
	}{
		"the one itself": {[2]string{ahead, behind}, 2, 1, "1 expired, 2 queued"},
		"the other":      {[2]string{ahead, behind}, 1, 2, "1 merged, 2 queued"},
		"both":           {[2]string{ahead, ahead}, 2, 1, "1 expired, 2 expired"},
		"neither":        {[2]string{behind, behind}, 2, 1, "1 queued, 2 merged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := zoned(t, db, c.zones[0], c.zones[1])
			// It was that time an hour and a half ago in the zone that is ahead, and will be in four and a half in the other.
			req.LocalTime = time.Now().UTC().Add(90 * time.Minute).Format("2006-01-02T15:04:05")
			req.IfPassed, req.ExpiresAfter = campaign.AtOnce, time.Hour
			merge(t, db, req, c.merged, c.into)
			run := deploy(t, db, req)
			// As if it had been deployed in time, and its jobs had waited for a worker since.
			db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger user; update deed.campaign_runs set created_at = now() - interval '2 hours'; alter table deed.campaign_runs enable trigger user`)
			db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now()`)
			expandAll(t, db)
			want(t, "the two", fates(t, db, req, run), c.want)
			db.Broken() // nobody deploys two hours ago
		})
	}
}

// What stands in the way of somebody's address until their own time is over does not have two of their names get it.
func TestExpand_MergedWhereOneIsSuppressedForAWhile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := zoned(t, db, "Etc/GMT+3", "Etc/GMT-3")
	req.LocalTime = time.Now().UTC().Add(6 * time.Hour).Format("2006-01-02T15:04:05") // in nine hours, and in three
	merge(t, db, req, 2, 1)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'full', 'w', p_expires_at => now() + interval '6 hours')`, address(campaign.Email, 0))
	run := deploy(t, db, req)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now()`)
	expandAll(t, db)
	want(t, "the two", fates(t, db, req, run), "1 queued, 2 merged")
}

// Whose contact has become another's since that one's job was expanded gets no second one.
func TestContract_C4_MergedBetweenJobs(t *testing.T) {
	t.Parallel()
	for name, members := range map[string][2]int{"the first into the last": {1, 1001}, "the last into the first": {1001, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := request(t, db, 1001)
			run := deploy(t, db, req)
			if _, err := worker(t, db).Step(t.Context()); err != nil { // the first job
				t.Fatal(err)
			}
			merge(t, db, req, members[0], members[1])
			expandAll(t, db)
			want(t, "the two", pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select string_agg(m.n || ' ' || coalesce(c.skip_reason, c.status), ', ' order by m.n)
				from deed.audience_members m join deed.channel_outbox c on c.contact_id = m.contact_id and c.run_id = $1::text::uuid where m.n in (1, 1001)`, run), "1 queued, 1001 merged")
		})
	}
}

// Who is skipped by one of their names, as that was suppressed when its job was expanded, gets it by another, though the suppression has ended since.
func TestContract_C4_SuppressedBetweenJobs(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 1002)
	merge(t, db, req, 1001, 1)
	merge(t, db, req, 1002, 1)
	db.Exec(t, pgtest.App, `select deed.suppress('email', array[$1], 'asked', 'w')`, address(campaign.Email, 0))
	run := deploy(t, db, req)
	if _, err := worker(t, db).Step(t.Context()); err != nil { // the first job
		t.Fatal(err)
	}
	db.Exec(t, pgtest.App, `select deed.unsuppress('email', array[$1], 'a mistake', 'w')`, address(campaign.Email, 0))
	expandAll(t, db)
	want(t, "the three", pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(m.n || ' ' || coalesce(c.skip_reason, c.status), ', ' order by m.n)
		from deed.audience_members m join deed.channel_outbox c on c.contact_id = m.contact_id and c.run_id = $1::text::uuid where m.n in (1, 1001, 1002)`, run), "1 suppressed: asked, 1001 queued, 1002 merged")
}

// What was reserved for two before they became one stays as it is, and each of them gets theirs: a
// merge counts from when jobs are expanded. What either of them has revoked then stops both.
func TestExpand_MergedAfterBothWere(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 2)
	run := deploy(t, db, req)
	expandAll(t, db)
	merge(t, db, req, 1, 2)
	two := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select string_agg(concat_ws(' ', c.status, deed.has_revoked(c.tenant_id, c.contact_id, c.channel, c.purpose)), ', ') from deed.channel_outbox c where c.run_id = $1::text::uuid`, run)
	}
	want(t, "merged", two(), "queued f, queued f")
	db.Exec(t, pgtest.App, `select deed.set_consents(array[$1::text::uuid], '{email}', '{newsletter}', '{revoked}', '{form}')`, contactOf(t, db, req, 1))
	want(t, "and one has revoked it", two(), "queued t, queued t")
	p, err := campaign.Verify(t.Context(), db.Pool(pgtest.App), run, 10)
	if err != nil || len(p.Findings) > 0 {
		t.Errorf("verified: %+v, %v", p.Findings, err)
	}
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Two contacts who become one while the jobs of both are expanded, of which neither sees what
// the other one makes, get one between them.
func TestContract_C4_MergedWhileBothAreExpanded(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{true, false} { // whose expansion has begun before the merge
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			req := request(t, db, 1001)
			run := deploy(t, db, req)
			db.Exec(t, pgtest.Worker, `select deed.claim_queued_jobs('w', 2)`)
			expand := func(tx execer, smallest bool) error {
				_, err := tx.Exec(t.Context(), `
					select j.id from deed.job_queue j, deed.expand_job(j.id, j.claim, 'w')
					where j.id = (select o.id from deed.job_queue o order by o.id limit 1 offset $1)`, map[bool]int{true: 0, false: 1}[smallest])
				return err
			}
			early, err := db.Pool(pgtest.Worker).Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = early.Rollback(context.Background()) }()
			if err := expand(early, first); err != nil {
				t.Fatal(err)
			}
			merge(t, db, req, 1, 1001)
			late := make(chan error, 1)
			go func() { late <- expand(db.Pool(pgtest.Worker), !first) }()
			var lateErr error
			if !pgtest.Wait(pgtest.Patience, func() bool {
				select {
				case lateErr = <-late:
					late <- lateErr
					return true
				default:
					return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
				}
			}) {
				t.Fatal("the later one neither waits nor ends")
			}
			if err := early.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-late; err != nil && sqlState(err) != "55P03" {
				t.Fatal(err)
			}
			db.Exec(t, pgtest.Owner, `select deed.put_back_job(id, claim, 'test', 'w') from deed.job_queue where status = 'locked' and expanded_at is null`)
			db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() where status = 'queued'`)
			expandAll(t, db)
			want(t, "the two", pgtest.One[string](t, db.Pool(pgtest.Owner), `
				select string_agg(coalesce(c.skip_reason, c.status), ', ' order by c.status)
				from deed.audience_members m join deed.channel_outbox c on c.contact_id = m.contact_id and c.run_id = $1::text::uuid where m.n in (1, 1001)`, run), "queued, merged")
		})
	}
}

// A job ends when everything in it has ended, and the run with its last job, as they have
// ended.
func TestContract_C3_EndsOfJobsAndRuns(t *testing.T) {
	t.Parallel()
	const first = "recipient = 'p0@d0.example'"
	for name, c := range map[string]struct {
		ends [][3]string // where, status, reason
		want string
	}{
		"all sent":                   {[][3]string{{"true", "sent"}}, "completed: completed 2/0/0/0/0"},
		"rightly skipped":            {[][3]string{{first, "skipped", "suppressed: asked"}, {"true", "sent"}}, "completed: completed 1/1/0/0/0"},
		"nobody was to get it":       {[][3]string{{"true", "skipped", "suppressed: asked"}}, "completed: completed 0/2/0/0/0"},
		"cancelled is not rightly":   {[][3]string{{first, "skipped", "cancelled"}, {"true", "sent"}}, "partial: completed 1/0/1/0/0"},
		"all expired":                {[][3]string{{"true", "skipped", "expired; an earlier call may have been accepted"}}, "failed: failed 0/0/2/0/0"},
		"mixed":                      {[][3]string{{first, "failed"}, {"true", "sent"}}, "partial: completed 1/0/0/1/0"},
		"none sent, one is dead":     {[][3]string{{first, "dead"}, {"true", "failed"}}, "failed: dead 0/0/0/1/1"},
		"none sent, one was skipped": {[][3]string{{first, "skipped", "no address"}, {"true", "failed"}}, "failed: failed 0/1/0/1/0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			run := deploy(t, db, request(t, db, 2))
			expandAll(t, db)
			for _, e := range c.ends {
				rollUp(t, db)
				want(t, "while one is open", states(t, db, run), "running: locked")
				endAll(t, db, e[0], e[1], e[2])
			}
			rollUp(t, db)
			want(t, "the end", states(t, db, run), c.want)
			db.Broken() // the test's own changes stand in no audit row
		})
	}
}

// Of two that end a run's last two jobs at once the second leaves its job for later, so that the run is not left
// by each to the other.
func TestRollUp_LastTwoJobsAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 1001))
	expandAll(t, db)
	endAll(t, db, "true", "sent", "")
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() - interval '1 second'`)
	ctx := context.Background()
	tx, err := db.Pool(pgtest.Worker).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, `select deed.roll_up(1, 'a')`); err != nil {
		t.Fatal(err)
	}
	const look = `select concat(r.looked, ' ', r.ended) from deed.roll_up(1, 'b') r`
	want(t, "the second job while the first one's end is not committed", pgtest.One[string](t, db.Pool(pgtest.Worker), look), "1 0")
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	want(t, "the run until it is looked at again", strings.SplitN(states(t, db, run), ":", 2)[0], "running")
	rollUp(t, db)
	want(t, "the run", strings.SplitN(states(t, db, run), ":", 2)[0], "completed")
	db.Broken()
}

// A job whose worker has stopped is taken back when its lease is over, and dead after five
// times; one that is expanded holds no lease.
func TestContract_C5_LostLeases(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 1))
	for n := range 5 {
		claimed := pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim_queued_jobs('w', 10)`)
		want(t, "claimed", claimed, 1)
		want(t, "claimed by another meanwhile", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim_queued_jobs('v', 10)`), 0)
		want(t, "lease", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select lease_until > clock_timestamp() + interval '4 minutes' from deed.job_queue`), true)
		want(t, "attempts", pgtest.One[int](t, db.Pool(pgtest.Owner), `select attempts from deed.job_queue`), n)
		db.Exec(t, pgtest.Owner, `update deed.job_queue set lease_until = clock_timestamp() - interval '1 second'`)
	}
	want(t, "claimed", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim_queued_jobs('w', 10)`), 0)
	want(t, "the run", states(t, db, run), "failed: dead")
	want(t, "why", pgtest.One[string](t, db.Pool(pgtest.Owner), `select last_error from deed.job_queue`), "the lease of w ran out before it was expanded")
	want(t, "a claim that was lost", pgtest.One[bool](t, db.Pool(pgtest.Worker), `select (deed.expand_job(id, 1, 'w')).state is null from deed.job_queue`), true)
}

// A job that cannot be expanded is tried five times.
func TestContract_C3_FiveFailedExpansions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	run := deploy(t, db, request(t, db, 1001))
	// Somebody has taken a key of the second job's.
	db.Exec(t, pgtest.App, `
		select deed.reserve('{email}', '{fake}', '{x@example.com}', '{"{}"}', array[deed.idempotency_key(r.id::text, m.contact_id::text, 'spring', to_char(r.scheduled_for at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))])
		from deed.campaign_runs r join deed.audience_members m on m.audience_id = r.audience_id and m.n = 1001`)
	w := worker(t, db)
	for n := range 5 {
		for range max(1, 2-n) { // at first the other job, too: it would be tried again by who is slower than two seconds
			if _, err := w.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "attempts", pgtest.One[int](t, db.Pool(pgtest.Owner), `select attempts from deed.job_queue where from_n = 1001`), n+1)
		db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() where status = 'queued'`)
	}
	want(t, "the run", states(t, db, run), "running: locked, dead")
	endAll(t, db, "run_id is not null", "sent", "")
	rollUp(t, db)
	want(t, "the run", states(t, db, run), "partial: completed 1000/0/0/0/0, dead")
	want(t, "transitions of the dead job", pgtest.One[string](t, db.Pool(pgtest.Admin), `
		select string_agg(distinct from_status || ' ' || to_status, ', ') from deed.campaign_audit_log a where a.subject_type = 'job' and a.subject_id = (select id::text from deed.job_queue where from_n = 1001)`),
		"failed dead, failed queued, locked failed, queued locked")
	want(t, "who is tried again", audienceOf(t, db, retry(t, db, run, campaign.RetryOptions{}).Run), "1 "+address(campaign.Email, 1000))
	db.Broken()
}

// What may keep somebody from getting it is asked once for each member: it costs more than the rest of a row. Of
// somebody who has never revoked anything a look into indexes says so, and no function is called.
func TestExpand_AsksOnceForEach(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Private(t, pgembed.Options{Unsafe: true, Settings: map[string]string{"track_functions": "pl"}}).DB(t)
	expand := func() (asked int) {
		t.Helper()
		err := pgx.BeginFunc(ctx, db.Pool(pgtest.Worker), func(tx pgx.Tx) error {
			var state string
			err := tx.QueryRow(ctx, `select e.state from deed.claim_queued_jobs('w', 1) j cross join lateral deed.expand_job(j.id, j.claim, 'w') e`).Scan(&state)
			if err == nil {
				err = tx.QueryRow(ctx, `select coalesce(sum(calls), 0) from pg_stat_xact_user_functions where schemaname = 'deed' and funcname = 'has_revoked'`).Scan(&asked)
			}
			want(t, "the job", state, "locked")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return asked
	}
	deploy(t, db, request(t, db, 20))
	want(t, "questions, of those who have said nothing", expand(), 0)
	again := request(t, db, 21)
	again.ID = "2"
	deploy(t, db, again)
	db.Exec(t, pgtest.App, `
		select deed.set_consents(array_agg(c.id), array_agg('email'::text), array_agg('newsletter'::text), array_agg(s.state), array_agg('form'::text))
		from deed.contacts c cross join (values ('revoked'), ('granted')) s(state)`)
	want(t, "questions, of those who have revoked and granted it since", expand(), 21)
}
