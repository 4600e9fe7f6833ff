package inbound_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// Who was erased while their message was run is not run again, however it was given up: by
// a process that died, or by one that was stopped. Nor is it held for a person.
func TestContract_D8_ErasedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	for name, giveUp := range map[string]string{
		"it died":        `update deed.channel_messages set lease_until = now() - interval '1 second'`,
		"it was stopped": `select from deed.channel_messages m, deed.finish_messages(array[m.id], array[m.claim], array['accepted'], array[null], array[null]::float8[], 10, 'w')`,
		"it dies always": `update deed.channel_messages set lease_until = now() - interval '1 second', attempts = 10`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1'], array['telegram'], array['canary'], array[''], array[''], array['{}'], '', 'link',
				'00000000-0000-0000-0000-000000000000', 'w')`)
			db.Exec(t, pgtest.Worker, `select deed.claim_messages('plain', 1, '1 minute', 10, 'w')`)
			eraseAnn(t, db)
			db.Exec(t, pgtest.Owner, giveUp)
			ran := make(chan struct{}, 10)
			one(t, db, func(context.Context, inbound.Message) (inbound.Result, error) {
				ran <- struct{}{}
				return inbound.Result{}, nil
			})
			eventually(t, "its end", func() bool { return strings.Contains(state(t, db), "denied_erased") })
			if len(ran) > 0 {
				t.Error("it was run again")
			}
			verified(t, db)
		})
	}
}

// Of sources that have one name in two tenants each runs its own tenant's messages.
func TestContract_D8_TenantsRunTheirOwn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	other := tenant.ID{0xb}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), other, "other"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []tenant.ID{tenant.Default, other} {
		db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1'], array['telegram'], array['ann'], array[''], array[''], array['{}'], '', 'link', $1::text::uuid, 'w')`, id.String())
	}
	s := source(func(context.Context, inbound.Message) (inbound.Result, error) { return inbound.Result{}, nil })
	s.Tenant = other
	receive(t, db, db.NewPool(pgtest.Worker, 4), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
	whose := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(status, ' ' order by tenant_id) from deed.channel_messages`)
	}
	eventually(t, "the tenant's own", func() bool { return strings.HasSuffix(whose(), "executed") })
	want(t, "the other's", whose(), "accepted executed")
}

// Where transactions are stricter by default nothing that was stored while another one
// ended waits for ever.
func TestContract_D8_StricterDefaultIsolation(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `do $$ begin execute format('alter database %I set default_transaction_isolation = ''repeatable read''', current_database()); end $$`)
	entered, let := make(chan struct{}), make(chan struct{})
	s := source(func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		if m.PlatformID != "1" {
			return inbound.Result{}, nil
		}
		return inbound.Result{InTx: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `select 1`)
			close(entered)
			<-let
			return err
		}}, nil
	})
	db.Providers(t, "fake", "hook")
	s.At = inbound.AfterAccepted
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 8), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
	want(t, "one", post(t, url, "1 ann hello"), 200)
	<-entered
	want(t, "two", post(t, url, "2 ann hello"), 200)
	close(let)
	eventually(t, "both", func() bool { return strings.Count(state(t, db), "executed") == 2 })
	verified(t, db)
}
