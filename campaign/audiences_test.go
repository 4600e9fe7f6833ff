package campaign_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/internal/pgtest"
)

// loading makes an audience of n members that is never finished.
func loading(t testing.TB, db *pgtest.DB, name string, n int) *campaign.Audience {
	t.Helper()
	a := opened(t, db, name, campaign.Email)
	var ms []campaign.Member
	for i := range n {
		ms = append(ms, campaign.Member{Address: address(campaign.Email, i)})
	}
	if err := a.AddRead(t.Context(), db.Pool(pgtest.App), int64(n), 0, ms...); err != nil {
		t.Fatal(err)
	}
	return a
}

// What was given up is listed, and removed in steps; who is killed in between has the rest go by the same again.
// From the first step on nobody goes on with it, nothing is called missing, and afterwards the name is free.
func TestAudiences_GivenUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	people(t, db, "done", campaign.Email, 3)
	a := loading(t, db, "given up", 25)
	list, err := campaign.Audiences(t.Context(), app, campaign.AudienceFilter{Status: "loading"})
	if err != nil || len(list.Items) != 1 || list.Items[0].ID != a.ID || list.Items[0].Members != 25 || list.Items[0].Read != 25 {
		t.Fatalf("%+v %v", list, err)
	}
	const step = `select removed || ' ' || gone from deed.remove_audience($1::text::uuid, 10)`
	killed(t, db, pgtest.App, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), step, a.ID)
		return err
	})
	want(t, "after a step that was killed", pgtest.One[int](t, app, `select count(*) from deed.audience_members where audience_id = $1::text::uuid`, a.ID), 25)
	want(t, "a step", pgtest.One[string](t, app, step, a.ID), "10 false")
	ready, _, err := campaign.FindAudience(t.Context(), app, campaign.Scope{}, "done")
	if err != nil {
		t.Fatal(err)
	}
	_, opened := campaign.OpenAudience(t.Context(), app, campaign.Scope{}, "given up", campaign.Email)
	_, removed := campaign.RemoveAudience(t.Context(), app, campaign.Scope{}, ready.ID, audit.Act{})
	for what, err := range map[string]error{
		"being removed, opened again": opened,
		"being removed, added to":     a.Add(t.Context(), app, campaign.Member{Address: "late@example.com"}),
		"being removed, finished":     a.Finish(t.Context(), app),
		"ready, removed":              removed,
	} {
		is, _, _ := strings.Cut(what, ",")
		if deed.CodeOf(err) != deed.Conflict || !strings.Contains(err.Error(), " is "+is) {
			t.Errorf("%s: %v", what, err)
		}
	}
	want(t, "violations in between", pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(v.invariant || ': ' || v.detail, '; '), '') from deed.verify_campaigns() v`), "")
	n, err := campaign.RemoveAudience(t.Context(), app, campaign.Scope{}, a.ID, audit.Act{By: "ann", Reason: "the wrong file"})
	want(t, "what the rest removes", fmt.Sprint(n, err), "15 <nil>")
	want(t, "what is left", pgtest.One[string](t, db.Pool(pgtest.Owner), `select (select count(*) from deed.audiences) || ' ' || (select count(*) from deed.audience_members)`), "1 3")
	if _, err := campaign.RemoveAudience(t.Context(), app, campaign.Scope{}, a.ID, audit.Act{}); deed.CodeOf(err) != deed.NotFound {
		t.Errorf("again: %v", err)
	}
	want(t, "members of the next one of the name", loading(t, db, "given up", 25).Members, 25)
	want(t, "in the audit log", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(from_status || ' ' || to_status || ' ' || affected, ', ') from deed.audit_log where action = 'remove'`), "loading removing 25")
}

// Members of an audience that is loading are removed by nothing else, nor is it.
func TestAudiences_RemovedByNothingElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	a := loading(t, db, "given up", 3)
	for _, sql := range []string{`delete from deed.audience_members`, `delete from deed.audiences`} {
		if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), sql); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v", sql, err)
		}
	}
	db.Exec(t, pgtest.App, `select deed.remove_audience($1::text::uuid, 1)`, a.ID)
	for _, sql := range []string{`update deed.audiences set status = 'loading'`, `update deed.audiences set status = 'ready', ready_at = now()`} {
		if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), sql); sqlState(err) != "DDCON" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}
