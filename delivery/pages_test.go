package delivery_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// Lists in pages of any size are what one statement without an index would give,
// whatever is asked for.
func TestDeliveries_PagesAreWhole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Broken() // how they stand is set by hand
	manyTenants(t, db, 3, `now() + interval '1 day'`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, created_at, updated_at)
		select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to('lane' || n, 'UTF8')), 'email',
		  case when n % 10 = 3 then 'other' else 'fake' end, n || '.example', case when n % 10 in (1, 5) then 'Ada@Example.com' else 'a@' || n || '.example' end, '{}',
		  now(), now()
		from generate_series(1, 200) n`)
	db.Exec(t, pgtest.Owner, `
		update deed.channel_outbox set status = 'dead', finished_at = now(), last_error = 'x' where lane ~ '[123]\.example$';
		update deed.channel_outbox set status = 'failed', finished_at = now(), last_error = 'x' where lane ~ '[4]\.example$';
		update deed.channel_outbox set status = 'sending', request = 'x', attempts = 1, called_at = now(), first_called_at = now(), claimed_at = now(),
		  claimed_by = 'x', claim = 1, lease_until = now() + interval '1 hour' * (length(lane) - 10)
		where lane ~ '[67]\.example$'`)
	l := ledgerOn(t, db.Pool(pgtest.Admin), delivery.Options{})
	one, err := tenant.Parse(pgtest.One[string](t, db.Pool(pgtest.Admin), `select min(tenant_id::text) from deed.channel_outbox`))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		filter delivery.Filter
		where  string
		some   bool
	}{
		"all":              {delivery.Filter{}, `true`, true},
		"dead":             {delivery.Filter{Status: delivery.Dead}, `status = 'dead'`, true},
		"dead of one":      {delivery.Filter{Status: delivery.Dead, Provider: "other"}, `status = 'dead' and provider = 'other'`, true},
		"failed":           {delivery.Filter{Status: delivery.Failed}, `status = 'failed'`, true},
		"failed of none":   {delivery.Filter{Status: delivery.Failed, Provider: "nothing"}, `false`, false},
		"queued":           {delivery.Filter{Status: delivery.Queued}, `status = 'queued'`, true},
		"under way":        {delivery.Filter{Status: delivery.Sending}, `status = 'sending'`, true},
		"in doubt":         {delivery.Filter{InDoubt: true}, `status = 'sending' and lease_until <= now()`, true},
		"in doubt at one":  {delivery.Filter{InDoubt: true, Provider: "other"}, `status = 'sending' and lease_until <= now() and provider = 'other'`, false},
		"of a provider":    {delivery.Filter{Provider: "other"}, `provider = 'other'`, true},
		"to somebody":      {delivery.Filter{Recipient: "aDA@example.com"}, `recipient = 'Ada@Example.com'`, true},
		"of a tenant":      {delivery.Filter{Tenant: &one}, `tenant_id = '` + one.String() + `'`, true},
		"a tenant's dead":  {delivery.Filter{Tenant: &one, Status: delivery.Dead}, `status = 'dead' and tenant_id = '` + one.String() + `'`, false},
		"dead to somebody": {delivery.Filter{Status: delivery.Dead, Recipient: "ada@example.com"}, `status = 'dead' and recipient = 'Ada@Example.com'`, true},
	} {
		want := pgtest.One[[]string](t, db.Pool(pgtest.Admin), `select coalesce(array_agg(id::text order by id desc), '{}') from deed.channel_outbox where `+test.where)
		if test.some && len(want) == 0 {
			t.Errorf("%s: there are none to look for", name)
		}
		for _, limit := range []int{7, 1000} {
			test.filter.Limit, test.filter.Cursor = limit, ""
			var got []string
			for looks := 0; ; looks++ {
				page, err := l.List(t.Context(), test.filter)
				if err != nil || looks > 100 {
					t.Fatalf("%s, after %d looks: %v", name, looks, err)
				}
				for _, e := range page.Items {
					got = append(got, e.ID)
				}
				if test.filter.Cursor = page.Next; page.Next == "" {
					break
				}
			}
			if !slices.Equal(got, want) && len(got)+len(want) > 0 {
				t.Errorf("%s, %d a page: got %d, want %d\n got %v\nwant %v", name, limit, len(got), len(want), got, want)
			}
		}
	}
	// The look itself, with so small a bound that it ends early again and again.
	for _, status := range []string{"null", "'dead'", "'queued'"} {
		var got []string
		next := "null"
		for looks := 0; next != ""; looks++ {
			found := pgtest.One[[]string](t, db.Pool(pgtest.Admin), fmt.Sprintf(`
				select array[coalesce(max(next::text), '')] || coalesce(array_agg(id::text order by id desc) filter (where id is not null), '{}')
				from deed.look_at_deliveries(%s, 5, 1000, %s, p_recipient => 'ada@example.com')`, next, status))
			got = append(got, found[1:]...)
			if next = ""; found[0] != "" {
				next = "'" + found[0] + "'"
			}
			if looks > 1000 {
				t.Fatal("the looks do not end")
			}
		}
		want := pgtest.One[[]string](t, db.Pool(pgtest.Admin), fmt.Sprintf(`
			select array_agg(id::text order by id desc) from deed.channel_outbox where recipient = 'Ada@Example.com' and (%[1]s is null or status = %[1]s)`, status))
		if !slices.Equal(got, want) || len(want) == 0 {
			t.Errorf("status %s: got %d, want %d", status, len(got), len(want))
		}
	}
}

// Pages of suppressions, some thousand of them since the same moment, are what one
// statement gives, whoever asks.
func TestSuppressions_PagesAreWhole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	manyTenants(t, db, 3, `now() + interval '1 day'`)
	db.Exec(t, pgtest.Owner, `
		insert into deed.suppressions (tenant_id, channel, address, reason, actor, created_at)
		select t.tenant_id, case when n % 3 = 0 then 'sms' else 'email' end, n || '@example.com', 'x', 'y', now() - interval '1 minute' * (n / 50)
		from (select distinct tenant_id from deed.channel_outbox) t
		cross join generate_series(1, 200) n`)
	one, err := tenant.Parse(pgtest.One[string](t, db.Pool(pgtest.Admin), `select min(tenant_id::text) from deed.suppressions`))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if err := tenant.Set(t.Context(), tx, one); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		by     deed.DB
		filter delivery.SuppressionFilter
		where  string
	}{
		"all":               {db.Pool(pgtest.Admin), delivery.SuppressionFilter{}, `true`},
		"of a tenant":       {db.Pool(pgtest.Admin), delivery.SuppressionFilter{Tenant: &one}, `tenant_id = '` + one.String() + `'`},
		"over a channel":    {db.Pool(pgtest.Admin), delivery.SuppressionFilter{Channel: delivery.SMS}, `channel = 'sms'`},
		"one address":       {db.Pool(pgtest.Admin), delivery.SuppressionFilter{Address: "7@Example.com"}, `address = '7@example.com'`},
		"a tenant's own":    {tx, delivery.SuppressionFilter{}, `tenant_id = '` + one.String() + `'`},
		"a tenant's by sms": {tx, delivery.SuppressionFilter{Channel: delivery.SMS}, `channel = 'sms' and tenant_id = '` + one.String() + `'`},
		"another's address": {tx, delivery.SuppressionFilter{Address: "8@example.com"}, `address = '8@example.com' and tenant_id = '` + one.String() + `'`},
	} {
		want := pgtest.One[[]string](t, db.Pool(pgtest.Admin), `
			select array_agg(concat_ws(' ', tenant_id, channel, address) order by created_at desc, tenant_id desc, channel desc, address desc)
			from deed.suppressions where `+test.where)
		for _, limit := range []int{2, 7, 1000} {
			test.filter.Limit, test.filter.Cursor = limit, ""
			var got []string
			for looks := 0; ; looks++ {
				list, err := delivery.Suppressions(t.Context(), test.by, test.filter)
				if err != nil || looks > 1000 {
					t.Fatalf("%s, after %d looks: %v", name, looks, err)
				}
				for _, s := range list.Items {
					got = append(got, fmt.Sprint(s.Tenant, " ", s.Channel, " ", s.Address))
				}
				if test.filter.Cursor = list.Next; list.Next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %d a page: got %d, want %d\n got %v\nwant %v", name, limit, len(got), len(want), got, want)
			}
		}
	}
	for _, cursor := range []string{"x", "e30", "bnVsbA", "eyJBdCI6IjIwMjYtMDEtMDFUMDA6MDA6MDBaIn0"} {
		if _, err := delivery.Suppressions(t.Context(), db.Pool(pgtest.Admin), delivery.SuppressionFilter{Cursor: cursor}); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("cursor %s: %v", cursor, err)
		}
	}
}
