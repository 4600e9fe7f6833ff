package campaign_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// spring is an e-mail that has all that it needs.
var spring = campaign.Content{Asset: "spring", Subject: "{{ contact.name }}, spring is here", Text: "Hello {{ contact.name }}\n{{ unsubscribe_url }}"}

// opened is an audience that has no members yet.
func opened(t testing.TB, db *pgtest.DB, name string, channel campaign.Channel) *campaign.Audience {
	t.Helper()
	a, err := campaign.OpenAudience(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, name, channel)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// people makes an audience of n members of a channel.
func people(t testing.TB, db *pgtest.DB, name string, channel campaign.Channel, n int) *campaign.Audience {
	t.Helper()
	a := opened(t, db, name, channel)
	for from := 0; from < n; from += 1000 {
		var ms []campaign.Member
		for i := from; i < min(from+1000, n); i++ {
			ms = append(ms, campaign.Member{Address: address(channel, i), Data: json.RawMessage(fmt.Sprintf(`{"name": "P%d"}`, i))})
		}
		if err := a.Add(t.Context(), db.Pool(pgtest.App), ms...); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Finish(t.Context(), db.Pool(pgtest.App)); err != nil {
		t.Fatal(err)
	}
	return a
}

func address(channel campaign.Channel, i int) string {
	switch channel {
	case campaign.Email:
		return fmt.Sprintf("p%d@d%d.example", i, i%7)
	case campaign.Social:
		return fmt.Sprintf("@account%d@localhost", i)
	case campaign.Chat:
		return fmt.Sprintf("@account%d", i)
	}
	return fmt.Sprintf("+4930%07d", i)
}

func put(t testing.TB, db *pgtest.DB, name string, content campaign.Content) campaign.Campaign {
	t.Helper()
	c, err := campaign.Put(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, name, content)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// request is of the spring e-mail to n people, through the provider fake.
func request(t testing.TB, db *pgtest.DB, n int) campaign.Request {
	t.Helper()
	db.Providers(t, "fake", "fake")
	return campaign.Request{
		Campaign: put(t, db, "spring", spring).ID, Audience: people(t, db, fmt.Sprintf("people %d", n), campaign.Email, n).ID,
		ID: "1", Channel: campaign.Email, Provider: "fake", Purpose: "newsletter", From: "shop@example.com",
	}
}

func deploy(t testing.TB, db *pgtest.DB, req campaign.Request) string {
	t.Helper()
	d, err := campaign.Deploy(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, req)
	if err != nil {
		t.Fatal(err)
	}
	return d.Run
}

func worker(t testing.TB, db *pgtest.DB) *campaign.Worker {
	t.Helper()
	w, err := campaign.NewWorker(t.Context(), db.Pool(pgtest.Worker), campaign.WorkerOptions{PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// expandAll expands every job that is due.
func expandAll(t testing.TB, db *pgtest.DB) {
	t.Helper()
	w := worker(t, db)
	for pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.job_queue where status = 'queued' and process_after <= clock_timestamp())`) {
		if _, err := w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// endAll has what is open of a run end as a status, rightly so.
func endAll(t testing.TB, db *pgtest.DB, where, status, reason string) {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Pool(pgtest.Owner).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if status != "skipped" {
		for _, to := range []string{"sending", status} {
			change := `status = 'sending', request = payload::text::bytea, claim = 1, attempts = 1, first_called_at = now(), called_at = now()`
			switch to {
			case "sent", "posted", "called":
				change = `status = '` + to + `', sent_at = now(), finished_at = now()`
			case "failed", "dead":
				change = `status = '` + to + `', finished_at = now()`
			}
			if _, err := tx.Exec(ctx, `update deed.channel_outbox set `+change+` where finished_at is null and `+where); err != nil {
				t.Fatal(err)
			}
		}
	} else if _, err := tx.Exec(ctx, `update deed.channel_outbox set status = 'skipped', skipped = true, skip_reason = $1, finished_at = now() where finished_at is null and `+where, reason); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

// rollUp looks at every job, as if it were due.
func rollUp(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `update deed.job_queue set process_after = now() - interval '1 second' where status = 'locked' and expanded_at is not null`)
	db.Exec(t, pgtest.Worker, `select deed.roll_up(1000, 'w')`)
}

// states are a run's status and those of its jobs, in order, with the counts of those that have ended.
func states(t testing.TB, db *pgtest.DB, run string) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select r.status || ':' || string_agg(concat_ws(' ', '', j.status, case when j.finished_at is not null then j.sent || '/' || j.skipped || '/' || j.missed || '/' || j.failed || '/' || j.dead end), ',' order by j.from_n)
		from deed.campaign_runs r join deed.job_queue j on j.run_id = r.id where r.id = $1::text::uuid group by r.id`, run)
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func sqlState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
