package campaign_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// zoned is a request to one member of each zone.
func zoned(t testing.TB, db *pgtest.DB, zones ...string) campaign.Request {
	t.Helper()
	req := request(t, db, 1)
	a := opened(t, db, "zones "+strings.Join(zones, ","), campaign.Email)
	var ms []campaign.Member
	for i, zone := range zones {
		ms = append(ms, campaign.Member{Address: address(campaign.Email, i), Zone: zone})
	}
	if err := a.Add(t.Context(), db.Pool(pgtest.App), ms...); err != nil {
		t.Fatal(err)
	}
	if err := a.Finish(t.Context(), db.Pool(pgtest.App)); err != nil {
		t.Fatal(err)
	}
	req.Audience = a.ID
	return req
}

// Each moment is by the clock of the zone, on both days on which it is changed: nothing is let
// go in quiet hours, and none is put off for longer than it must, but for an end that is
// skipped, which is as much later.
func TestWindow_ClocksAreChanged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const format = `YYYY-MM-DD"T"HH24:MI"Z"`
	for _, c := range []struct{ quiet, zone, at, want string }{
		{"22:00-08:00", "Europe/Paris", "2026-03-28T20:59Z", "2026-03-28T20:59Z"}, // 21:59
		{"22:00-08:00", "Europe/Paris", "2026-03-28T21:00Z", "2026-03-29T06:00Z"}, // 22:00, and 08:00 an hour early
		{"22:00-08:00", "Europe/Paris", "2026-03-29T05:59Z", "2026-03-29T06:00Z"},
		{"22:00-08:00", "Europe/Paris", "2026-03-29T06:00Z", "2026-03-29T06:00Z"},
		{"22:00-08:00", "Europe/Paris", "2026-10-24T20:00Z", "2026-10-25T07:00Z"}, // 22:00, and 08:00 an hour late
		{"22:00-02:30", "Europe/Paris", "2026-03-29T00:30Z", "2026-03-29T01:30Z"}, // there is no 02:30
		{"02:00-03:00", "Europe/Paris", "2026-03-29T01:00Z", "2026-03-29T01:00Z"}, // nor any of these hours
		{"22:00-02:30", "Europe/Paris", "2026-10-24T23:59Z", "2026-10-25T01:30Z"}, // the second 02:30
		{"02:30-03:00", "Europe/Paris", "2026-10-25T00:45Z", "2026-10-25T02:00Z"}, // the first 02:45
		{"22:00-08:00", "America/New_York", "2026-03-08T06:59Z", "2026-03-08T12:00Z"},
		{"22:00-08:00", "America/New_York", "2026-11-01T05:30Z", "2026-11-01T13:00Z"},
		{"22:00-08:00", "Australia/Sydney", "2026-10-03T12:00Z", "2026-10-03T21:00Z"}, // theirs is in October
		{"23:00-00:00", "America/Santiago", "2026-09-06T03:00Z", "2026-09-06T04:00Z"}, // midnight is skipped
		{"22:00-08:00", "Asia/Kolkata", "2026-03-28T16:30Z", "2026-03-29T02:30Z"},
		{"08:00-22:00", "UTC", "2026-03-28T08:00Z", "2026-03-28T22:00Z"},
		{"03:00-02:30", "Europe/Paris", "2026-03-28T12:00Z", "2026-03-30T00:30Z"}, // the half hour is skipped that day
	} {
		got := pgtest.One[string](t, db.Pool(pgtest.Owner), `select to_char(deed.after_quiet($1::text::timestamptz, $2, $3) at time zone 'UTC', $4)`, c.at, c.quiet, c.zone, format)
		want(t, c.quiet+" in "+c.zone+" from "+c.at, got, c.want)
	}
	// Of all minutes of two days around each change: what is let go is not in quiet hours.
	for _, quiet := range []string{"22:00-08:00", "01:30-02:30", "02:30-01:30", "00:00-03:00"} {
		want(t, "moments in the quiet hours "+quiet, pgtest.One[int](t, db.Pool(pgtest.Owner), `
			select count(*)
			from unnest('{2026-03-28,2026-10-24,2026-03-07,2026-10-31,2026-04-04,2026-10-03}'::timestamptz[]) d(day)
			cross join generate_series(0, 2880, 7) m
			cross join unnest('{Europe/Paris,America/New_York,Australia/Lord_Howe,Africa/Cairo}'::text[]) z
			cross join lateral deed.after_quiet(d.day + m * interval '1 minute', $1, z) a
			cross join lateral (select (a at time zone z)::time as clock) c
			where a < d.day + m * interval '1 minute' or a > d.day + m * interval '1 minute' + interval '3 days'
				or case when split_part($1, '-', 1) < split_part($1, '-', 2) then c.clock >= split_part($1, '-', 1)::time and c.clock < split_part($1, '-', 2)::time
					else c.clock >= split_part($1, '-', 1)::time or c.clock < split_part($1, '-', 2)::time end`, quiet), 0)
	}
}

// What counts as night (deed.quiet_time) is what nothing is let go in, also around the changes of clocks and from or to the
// middle of it; in a zone that nobody knows it is the run's.
func TestWindow_HowMuchOfATimeIsNight(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, quiet := range []string{"22:00-08:00", "04:00-21:30"} {
		for _, zone := range []string{"Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "", "Europe/Atlantis"} {
			want(t, "times of which another part is in the quiet hours "+quiet+" of "+zone, pgtest.One[int](t, db.Pool(pgtest.Owner), `
				select count(*)
				from unnest('{2026-03-28,2026-10-24,2026-03-07,2026-10-31,2026-04-04,2026-10-03}'::timestamptz[]) d(day)
				cross join unnest('{0,5,11,17,23}'::int[]) f(hour)
				cross join unnest('{0,1,9,24,60}'::int[]) l(hours)
				cross join lateral (select d.day + f.hour * interval '1 hour' as at) b
				cross join lateral (
					select count(*) * interval '10 minutes' as long
					from generate_series(0, l.hours * 6 - 1) i
					cross join lateral (select b.at + i * interval '10 minutes' + interval '5 minutes' as at) m
					where deed.after_quiet(m.at, $1, case when $2 in ('', 'Europe/Atlantis') then 'Africa/Cairo' else $2 end) > m.at
				) n
				where deed.quiet_time(jsonb_build_object('quiet_hours', $1::text, 'zone', 'Africa/Cairo'), $2, b.at, b.at + l.hours * interval '1 hour') <> n.long`, quiet, zone), 0)
		}
	}
}

// Local times on both days too, and who is late.
func TestWindow_LocalTimes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, c := range []struct{ options, zone, made, want string }{
		{`"at": "2026-03-29T09:00"`, "Europe/Paris", "2026-03-28T00:00Z", "2026-03-29T07:00Z"},
		{`"at": "2026-03-29T02:30"`, "Europe/Paris", "2026-03-28T00:00Z", "2026-03-29T01:30Z"}, // it is skipped: an hour later
		{`"at": "2026-10-25T02:30"`, "Europe/Paris", "2026-10-24T00:00Z", "2026-10-25T01:30Z"}, // it comes twice: the second
		{`"at": "2026-03-28T09:00"`, "Europe/Paris", "2026-03-28T12:00Z", "2026-03-29T07:00Z"}, // late, by default the next day
		{`"at": "2026-03-28T09:00", "if_passed": "now"`, "Europe/Paris", "2026-03-28T12:00Z", "2026-03-28T12:00Z"},
		{`"at": "2026-03-28T09:00", "if_passed": "skip"`, "Europe/Paris", "2026-03-28T12:00Z", ""},
		{`"at": "2026-03-28T09:00", "if_passed": "skip"`, "America/New_York", "2026-03-28T12:00Z", "2026-03-28T13:00Z"},
		{`"at": "2026-03-20T09:00"`, "Pacific/Auckland", "2026-03-28T12:00Z", "2026-03-28T20:00Z"}, // days late
		{`"at": "2026-03-28T23:00", "quiet_hours": "22:00-08:00"`, "Europe/Paris", "2026-03-28T12:00Z", "2026-03-29T06:00Z"},
		{`"at": "2026-03-28T09:00", "zone": "Asia/Tokyo"`, "", "2026-03-27T12:00Z", "2026-03-28T00:00Z"},                // who has none
		{`"at": "2026-03-28T09:00", "zone": "Asia/Tokyo"`, "Europe/Atlantis", "2026-03-27T12:00Z", "2026-03-28T00:00Z"}, // or one that is known no more
		{`"at": "2026-03-28T09:00"`, "", "2026-03-27T12:00Z", "2026-03-28T09:00Z"},
	} {
		got := pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce(to_char(t.due at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"'), '') from deed.time_in(('{' || $1 || '}')::jsonb, $2::text::timestamptz, $2::text::timestamptz, $3, now()) t`,
			c.options, c.made, c.zone)
		want(t, c.options+" in "+c.zone, got, c.want)
	}
}

// Members are due by their own zones, and the run from the first to the last of them; keys hold
// when it begins.
func TestWindow_EachByTheirZone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := zoned(t, db, "Asia/Tokyo", "Europe/Paris", "", "America/Los_Angeles")
	day := time.Now().UTC().AddDate(0, 0, 3)
	req.LocalTime, req.Zone, req.ExpiresAfter = day.Format("2006-01-02")+"T09:00", "UTC", 2*time.Hour
	run := deploy(t, db, req)
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now()`)
	expandAll(t, db)
	owner := db.Pool(pgtest.Owner)
	for i, zone := range []string{"Asia/Tokyo", "Europe/Paris", "UTC", "America/Los_Angeles"} {
		want(t, "due in "+zone, pgtest.One[bool](t, owner, `select not due and process_after = $2::text::timestamp at time zone $3 from deed.channel_outbox where recipient = $1`, address(campaign.Email, i), req.LocalTime, zone), true)
	}
	want(t, "the run", pgtest.One[bool](t, owner, `
		select scheduled_for = $2::text::timestamp at time zone 'Asia/Tokyo' and last_due = $2::text::timestamp at time zone 'America/Los_Angeles'
			and expires_at = last_due + interval '2 hours' and (select min(process_after) <= scheduled_for from deed.job_queue where run_id = r.id)
			and zones = '{"": 1, "Asia/Tokyo": 1, "Europe/Paris": 1, "America/Los_Angeles": 1}'
		from deed.campaign_runs r where id = $1::text::uuid`, run, req.LocalTime), true)
	if list, err := campaign.Verify(t.Context(), owner, run, 10); err != nil || len(list.Found) != 0 {
		t.Errorf("verify: %v %v", list, err)
	}
	// The same is the same run, and another time another one.
	want(t, "again", deploy(t, db, req), run)
	req.LocalTime = day.Format("2006-01-02") + "T10:00"
	if _, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("another time: %v", err)
	}
}

// quietNow are hours in which it is quiet by the clock of UTC, and whose end is at least two
// hours away.
func quietNow() string {
	now := time.Now().UTC()
	return fmt.Sprintf("%02d:00-%02d:00", now.Add(-time.Hour).Hour(), now.Add(4*time.Hour).Hour())
}

// accept settles what is being sent.
func accept(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Worker, `
		select deed.settle(array_agg(id), array_agg(claim), array_agg('accepted'::text), array_agg(id::text), array_agg(null::text), array_agg(null::float8), 'w') from deed.channel_outbox where status = 'sending'`)
}

// Who is asleep when it is due is written to afterwards, also where the night begins between
// the reservation and the claim, or between the claim and the call; others are written to.
func TestWindow_QuietHours(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, app := db.Pool(pgtest.Owner), db.Pool(pgtest.App)
	// By the clock of Kiritimati it is 14 hours later than by UTC's.
	req := zoned(t, db, "", "Pacific/Kiritimati")
	req.QuietHours = quietNow()
	run := deploy(t, db, req)
	expandAll(t, db)
	const waits = `select coalesce(string_agg(recipient || ' ' || status || ' ' || due || ' ' || (process_after - now() between interval '2 hours' and interval '5 hours'), ', '), '') from deed.channel_outbox where process_after > now()`
	asleep := address(campaign.Email, 0) + " queued false true"
	want(t, "reserved", pgtest.One[string](t, owner, waits), asleep)

	s, err := campaign.Show(t.Context(), app, run)
	if err != nil || len(s.Waits) != 1 || s.Waits[0].Why != "quiet hours" || s.Waits[0].Deliveries != 1 || s.Waits[0].Zone != "UTC" || s.Waits[0].LocalTime != req.QuietHours[6:] {
		t.Errorf("why nothing goes: %+v, %v", s.Waits, err)
	}

	// As if the night had come since: the claim puts it off, and pays for nothing.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`)
	want(t, "due", pgtest.One[int](t, owner, `select count(*) from deed.channel_outbox where due`), 2)
	want(t, "claimed", pgtest.One[string](t, db.Pool(pgtest.Worker), `select string_agg(c.recipient, ',') from deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true) c`), address(campaign.Email, 1))
	want(t, "put off", pgtest.One[string](t, owner, waits), asleep)
	want(t, "claims of what was put off", pgtest.One[bool](t, owner, `select claim is null and lost_claims = 0 from deed.channel_outbox where recipient = $1`, address(campaign.Email, 0)), true)

	// And since the claim.
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null, claim = 7, claimed_at = now(), claimed_by = 'w', lease_until = now() + interval '1 minute' where recipient = $1`, address(campaign.Email, 0))
	want(t, "the attempt", pgtest.One[string](t, db.Pool(pgtest.Worker), `
		select string_agg(a.status || coalesce(' ' || a.why, ''), ', ' order by a.status)
		from deed.attempt(array(select id from deed.channel_outbox order by recipient), array(select claim from deed.channel_outbox order by recipient), array['x'::bytea, 'y'::bytea], null, '1 minute', 'w') a`), "queued quiet, sending")
	want(t, "let go", pgtest.One[string](t, owner, waits), asleep)
	want(t, "claimable", pgtest.One[int](t, db.Pool(pgtest.Worker), `select count(*) from deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`), 0)
	accept(t, db)
}

// A relay sends who is awake, comes to rest, and sends the others in their time.
func TestWindow_ARelayWaits(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := zoned(t, db, "", "Pacific/Kiritimati", "", "Pacific/Kiritimati")
	req.QuietHours = quietNow()
	run := deploy(t, db, req)
	expandAll(t, db)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = null where status = 'queued'`)
	c := &counter{}
	ledgers := serve(t, db, c, 2)
	waitFor(t, "the ledgers to be drained", func() bool {
		ok, err := ledgers[0].Drained(context.Background())
		return err == nil && ok
	})
	want(t, "calls by night", c.calls.Load(), 2)
	if ok, err := worker(t, db).Drained(context.Background()); err != nil || !ok {
		t.Errorf("the worker by night: drained %t, %v", ok, err)
	}
	// Morning comes: the run is as if it had been asked for without.
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger campaign_runs_transition`)
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set options = options - 'quiet_hours'`)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs enable trigger campaign_runs_transition`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set process_after = now() where status = 'queued'`)
	waitFor(t, "the run to end", func() bool {
		rollUp(t, db)
		return states(t, db, run) == "completed: completed 4/0/0/0/0"
	})
	want(t, "calls", c.calls.Load(), 4)
}

// A member's time is over a while after it was due, and not after the first or the last one was;
// the run's is when the last one's is. What was paused does not count.
func TestWindow_ExpiresByOnesOwnTime(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	req := zoned(t, db, "Etc/GMT-3", "Etc/GMT+3")
	// It was that time an hour and a half ago in the first zone, and will be in four and a half in the other.
	req.LocalTime = time.Now().UTC().Add(90 * time.Minute).Format("2006-01-02T15:04:05")
	req.IfPassed, req.ExpiresAfter = campaign.AtOnce, time.Hour
	deploy(t, db, req)
	// As if it had been deployed in time.
	shift := func() {
		t.Helper()
		db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger campaign_runs_transition`)
		db.Exec(t, pgtest.Owner, `update deed.campaign_runs set created_at = now() - interval '2 hours'`)
		db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs enable trigger campaign_runs_transition`)
	}
	shift()
	expandAll(t, db)
	want(t, "reserved", pgtest.One[string](t, owner, `select string_agg(status || coalesce(' ' || skip_reason, ''), ', ' order by recipient) from deed.channel_outbox`), "skipped expired, queued")

	// One that was reserved in time, and claimed too late.
	req.ID = "2"
	run := deploy(t, db, req)
	expandAll(t, db)
	shift()
	db.Exec(t, pgtest.Worker, `select deed.claim_deliveries('fake', 'w', 10, '1 minute', p_runs => true)`)
	attempt := `select string_agg(a.status || coalesce(' ' || a.why, ''), ', ') from deed.attempt(array(select id from deed.channel_outbox where run_id = $1::text::uuid and claim is not null),
		array(select claim from deed.channel_outbox where run_id = $1::text::uuid and claim is not null), array['x'::bytea], null, '1 minute', 'w') a`
	tx, err := db.Pool(pgtest.Worker).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := tx.QueryRow(t.Context(), attempt, run).Scan(&got); err != nil || got != "skipped expired" {
		t.Errorf("the attempt: %s, %v", got, err)
	}
	_ = tx.Rollback(t.Context())
	want(t, "swept", pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.sweep_runs(100, 'w')`), 0)

	// It was paused for most of that.
	if _, err := campaign.Pause(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set paused_at = now() - interval '80 minutes', expires_at = expires_at where paused_at is not null`)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs disable trigger campaign_runs_transition`)
	db.Exec(t, pgtest.Owner, `update deed.campaign_runs set scheduled_for = scheduled_for - interval '2 hours' where paused_at is not null`)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_runs enable trigger campaign_runs_transition`)
	if err := campaign.Resume(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, run, audit.Act{}); err != nil {
		t.Fatal(err)
	}
	want(t, "after a pause", pgtest.One[string](t, db.Pool(pgtest.Worker), attempt, run), "sending")
	accept(t, db)
	db.Broken()
}

// What cannot be is refused, and named.
func TestContract_C8_Windows(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	base := zoned(t, db, "Europe/Paris", "Asia/Tokyo")
	for name, c := range map[string]struct {
		change func(*campaign.Request)
		want   string
	}{
		"passed": {func(r *campaign.Request) {
			r.LocalTime, r.IfPassed = time.Now().UTC().Add(-6*time.Hour).Format("2006-01-02T15:04"), campaign.Skip
			r.ExpiresAfter = 72 * time.Hour
		}, "window_never_opens: its local time has passed everywhere"},
		"all day":       {func(r *campaign.Request) { r.QuietHours = "08:00-08:00" }, "window_never_opens: its quiet hours are all day"},
		"years late":    {func(r *campaign.Request) { r.LocalTime = "2025-03-20T09:00" }, "expired: "},
		"zone":          {func(r *campaign.Request) { r.QuietHours, r.Zone = "22:00-08:00", "Europe/Atlantis" }, "'Europe/Atlantis' is not the name of a time zone"},
		"offset":        {func(r *campaign.Request) { r.QuietHours, r.Zone = "22:00-08:00", "+02:00" }, "'+02:00' is not the name of a time zone"},
		"for nobody":    {func(r *campaign.Request) { r.Zone = "Europe/Paris" }, "zone is for those who have none"},
		"two times":     {func(r *campaign.Request) { r.LocalTime, r.ScheduledFor = "2036-03-20T09:00", time.Now() }, "and not at both"},
		"no time":       {func(r *campaign.Request) { r.LocalTime = "2036-02-30T09:00" }, "at is a time of the recipient's zone"},
		"an instant":    {func(r *campaign.Request) { r.LocalTime = "2036-02-20T09:00Z" }, "at is a time of the recipient's zone"},
		"if passed":     {func(r *campaign.Request) { r.IfPassed = "later"; r.LocalTime = "2036-02-20T09:00" }, "if_passed is now, next_day or skip"},
		"no window":     {func(r *campaign.Request) { r.IfPassed = campaign.Skip }, "and goes with at"},
		"hours":         {func(r *campaign.Request) { r.QuietHours = "22-8" }, "quiet_hours are two times"},
		"rate":          {func(r *campaign.Request) { r.Rate = "10 a second" }, "rate is deliveries a second"},
		"zero":          {func(r *campaign.Request) { r.Rate = "0/s" }, "rate is from 1/h"},
		"ramp without":  {func(r *campaign.Request) { r.Ramp = &campaign.Ramp{From: "1/s", Every: time.Hour} }, "a ramp leads up to a rate"},
		"ramp for ever": {func(r *campaign.Request) { r.Rate, r.Ramp = "10/s", &campaign.Ramp{From: "1/s"} }, "each step of a ramp lasts"},
		"steps": {func(r *campaign.Request) {
			r.Rate, r.Ramp = "10/s", &campaign.Ramp{Steps: []campaign.Step{{Rate: "fast", For: time.Hour}}}
		}, "ramp is "},
		"both": {func(r *campaign.Request) {
			r.Rate, r.Ramp = "10/s", &campaign.Ramp{From: "1/s", Every: time.Hour, Steps: []campaign.Step{{Rate: "1/s", For: time.Hour}}}
		}, "a ramp doubles, or it is a table"},
	} {
		req := base
		c.change(&req)
		_, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req)
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.campaign_runs`), 0)
	// An audience's zones are looked at when it is loaded.
	a := opened(t, db, "bad", campaign.Email)
	if err := a.Add(t.Context(), db.Pool(pgtest.App), campaign.Member{Address: "x@y.example", Zone: "Europe/Atlantis"}); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "member 1: its zone") {
		t.Errorf("an unknown zone: %v", err)
	}
}

// Each claim asks for the time in each of a run's zones, and a zone can be spelt in many ways: a run has no more of them than there are zones, and some.
func TestContract_C8_NoMoreZonesThanThereAre(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 1)
	spelt := func(n int) string {
		a := opened(t, db, fmt.Sprint(n), campaign.Email)
		var ms []campaign.Member
		for i := range n {
			zone := []byte("antarctica/dumontdurville")
			for bit := range 10 {
				if i>>bit&1 == 1 {
					zone[bit] -= 'a' - 'A'
				}
			}
			ms = append(ms, campaign.Member{Address: address(campaign.Email, i), Zone: string(zone)})
		}
		if err := errors.Join(a.Add(t.Context(), db.Pool(pgtest.App), ms...), a.Finish(t.Context(), db.Pool(pgtest.App))); err != nil {
			t.Fatal(err)
		}
		return a.ID
	}
	for n, problem := range map[int]string{1000: "", 1001: "too_many_zones: its members have 1001 spellings of time zones, and there are some 600: at most 1000"} {
		req.Audience, req.ID, req.QuietHours = spelt(n), fmt.Sprint(n), "22:00-08:00"
		_, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req)
		if (err == nil) != (problem == "") || err != nil && (deed.CodeOf(err) != deed.Invalid || !strings.HasSuffix(err.Error(), problem)) {
			t.Errorf("%d spellings: %v, want %q", n, err, problem)
		}
		req.ID, req.QuietHours = req.ID+" by day and by night", ""
		deploy(t, db, req)
	}
}
