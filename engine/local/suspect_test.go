package local_test

import (
	"context"
	"strings"
	"testing"

	"github.com/deedhq/deed/engine/local"
	"github.com/deedhq/deed/internal/pgtest"
)

// An engine that has a step in hand that may be what kills its workers takes no second one of its kind, which would lose as many claims and fail with it;
// what is none goes on, and those that are over are recorded (O17).
func TestContract_O17_NothingIsTakenAlong(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	put(t, db, `{plan: p, version: "1", steps: {a: {kind: go, handler: a}}}`)
	lose := func(id string, claims int) {
		db.Exec(t, pgtest.Owner, `
			update deed.run_steps
			set lost_claims = $2, engine_attempt = $2 + 1, claim = deed.claim_number(), claimed_by = 'gone', claimed_at = clock_timestamp() - interval '1 minute', lease_until = clock_timestamp() - interval '1 second'
			where run_id = $1::text::uuid`, id, claims)
	}
	ids := map[string]string{}
	for name, claims := range map[string]int{"first": 4, "second": 4, "third": 8, "fresh": 3, "dead": 9, "given back": 5, "given back, too": 5} {
		ids[name] = start(t, db, name, map[string]string{"name": name})
		lose(ids[name], claims)
		if strings.HasPrefix(name, "given") {
			db.Exec(t, pgtest.Owner, `update deed.run_steps set claim = null, claimed_by = null, claimed_at = null, lease_until = null where run_id = $1::text::uuid`, ids[name])
		}
	}
	begun, goOn := make(chan string, 10), make(chan struct{})
	serve(t, db, local.Options{Concurrency: 8, Handlers: []local.Handler{local.Step("a", func(ctx context.Context, in struct{ Name string }) (nothing, error) {
		if in.Name != "fresh" && in.Name != "new" {
			begun <- in.Name
			<-goOn
		}
		return nil, nil
	})}})
	suspects := map[string]bool{}
	for range 5 {
		suspects[<-begun] = true
		want(t, "what has lost fewer", ended(t, db, ids["fresh"]), "COMPLETED")
		want(t, "what has lost ten", ended(t, db, ids["dead"]), "FAILED")
		fresh := "new " + string(rune('0'+len(suspects)))
		want(t, "what comes beside it", ended(t, db, start(t, db, fresh, map[string]string{"name": "new"})), "COMPLETED")
		want(t, "others that have begun", len(begun), 0)
		want(t, "who else is in hand", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.run_steps where lost_claims >= 5 and lease_until > clock_timestamp()`), 1)
		goOn <- struct{}{}
	}
	for _, name := range []string{"first", "second", "third", "given back", "given back, too"} {
		want(t, name, ended(t, db, ids[name]), "COMPLETED")
	}
	want(t, "suspects", len(suspects), 5)
}
