package smtp_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Whatever order what servers say of one mail comes in, and however often: the end is what the
// same mails come to in the order of the fixtures.
func TestContract_D13_BouncesInAnyOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner, worker := db.Pool(pgtest.Owner), db.Pool(pgtest.Worker)
	p := withBounces(t, "bounce+{id}@bounces.example.com", eventSecret)
	l, err := delivery.New(t.Context(), worker, delivery.Options{Providers: map[string]delivery.ProviderOptions{"mail": {Provider: p}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	bounces := l.Bounces(map[string]delivery.MailReader{"mail": p})
	all := []string{"postfix-failed", "postfix-delayed", "postfix-delivered", "postfix-no-code", "exim-failed", "exim-plain", "exchange-failed", "exchange-policy", "rfc3464-several", "vacation"}
	n := 0
	// sent is a mail to bob@example.org that the server has taken.
	sent := func() (id, to string) {
		n++
		made, err := delivery.Reserve(t.Context(), db.Pool(pgtest.App), delivery.Delivery{
			Channel: delivery.Email, Provider: "mail", Recipient: "bob@example.org", Key: delivery.NewKey("dsn", fmt.Sprint(n)), Payload: delivery.EmailPayload{Subject: "x", Text: "x"}.JSON(),
		})
		if err != nil {
			t.Fatal(err)
		}
		id = made[0].ID
		claim := pgtest.One[int64](t, worker, `select claim from deed.claim_deliveries('mail', 'w', 1, '1 minute') where id is not null`)
		if status := pgtest.One[string](t, worker, `select status from deed.attempt(array[$1::text::uuid], array[$2::bigint], array['x'::bytea], null, '1 minute', 'w', 'smtp', $3)`, id, claim, p.Capabilities().Account); status != "sending" {
			t.Fatal(status)
		}
		db.Exec(t, pgtest.Worker, `select from deed.settle(array[$1::text::uuid], array[$2::bigint], array['accepted'], array[null::text], array[null::text], array[null::float8], 'w')`, id, claim)
		to, _ = returnFor(t, p, id)
		return id, to
	}
	end := func(fatal func(...any), mails []string) string {
		id, to := sent()
		for _, name := range mails {
			if _, err := bounces.Take(t.Context(), to, fixture(t, name, to)); err != nil {
				fatal(name, err)
			}
		}
		got := pgtest.One[string](t, owner, `
			select c.status || coalesce((
			    select ' ' || (to_jsonb(f) - 'delivery_id')::text from deed.delivery_feedback f where f.delivery_id = c.id
			  ), '') || coalesce((select ' suppressed for ' || string_agg(s.address || '=' || s.purpose, ' ' order by s.address, s.purpose) from deed.suppressions s), '')
			  || coalesce((select ' soft ' || string_agg(b.address || ' ' || b.at, ' ') from deed.soft_bounces b where b.delivery_id = c.id), '')
			from deed.channel_outbox c where c.id = $1::text::uuid`, id)
		// The next one is written to again.
		db.Exec(t, pgtest.Owner, `select deed.unsuppress('email', '{bob@example.org}', 'x', 'x', '00000000-0000-0000-0000-000000000000')`)
		db.Exec(t, pgtest.Owner, `delete from deed.soft_bounces`)
		return got
	}
	rapid.Check(t, func(rt *rapid.T) {
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 5, rapid.ID[string]).Draw(rt, "mails")
		again := rapid.SliceOfN(rapid.SampledFrom(some), 0, 3).Draw(rt, "again")
		order := rapid.Permutation(append(slices.Clone(some), again...)).Draw(rt, "order")
		slices.SortFunc(some, func(a, b string) int { return slices.Index(all, a) - slices.Index(all, b) })
		want, got := end(rt.Fatal, some), end(rt.Fatal, order)
		if want != got {
			rt.Fatalf("%q come to\n%s\nand in the order %q to\n%s", some, want, order, got)
		}
	})
	if list := pgtest.One[int](t, worker, `select count(*)::int from deed.verify()`); list > 0 {
		t.Errorf("deed.verify: %d", list)
	}
}
