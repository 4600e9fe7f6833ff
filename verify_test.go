package deed_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// For every invariant, the tables are broken by hand and deed.verify shows
// exactly that.
func TestVerify_SeesEveryViolation(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breakIt []string
		want    []string // invariant|subscription|message
	}{
		"no due time": {
			[]string{`update deed.pending set process_after = 'infinity' where id = (select max(id) from deed.pending where subscription = 1)`},
			[]string{"unfinished message without a due time or a live claim|orders/s|pending"},
		},
		"a claim that never ends": {
			[]string{`update deed.pending set claim = 1, claimed_by = 'x', claimed_at = now(), lease_until = 'infinity' where id = (select max(id) from deed.pending where subscription = 1)`},
			[]string{"unfinished message without a due time or a live claim|orders/s|pending"},
		},
		"half a claim": {
			[]string{`update deed.pending set claimed_at = now() where id = (select max(id) from deed.pending where subscription = 1)`},
			[]string{"unfinished message without a due time or a live claim|orders/s|pending"},
		},
		"negative count": {
			[]string{`update deed.pending set lost_claims = -1 where subscription = 1`},
			[]string{"pending row contradicts itself|orders/s|pending"},
		},
		"dead without a reason": {
			[]string{`update deed.pending set dead_at = now() where subscription = 1`},
			[]string{"pending row contradicts itself|orders/s|pending"},
		},
		"dead with a lease": {
			[]string{`update deed.pending set dead_at = now(), last_error = 'x', lease_until = now() where subscription = 1`},
			[]string{"pending row contradicts itself|orders/s|pending"},
		},
		"headers": {
			[]string{`update deed.log set headers = '[]' where id = (select max(id) from deed.pending where subscription = 1)`},
			[]string{"headers are not an object||pending"},
		},
		"finished and still pending": {
			[]string{`insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 1, l.slot, l.id, l.tenant_id, now() from deed.log l where l.id = (select max(min_id) from deed.receipts)`},
			[]string{"finished message still pending|orders/s|finished"},
		},
		"two live claims": {
			[]string{
				`alter table deed.pending drop constraint pending_pkey`,
				`insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 1, p.slot, p.id, p.tenant_id, now() from deed.pending p where p.subscription = 1`,
			},
			[]string{"two live claims on one message|orders/s|pending"},
		},
		"state lost": {
			[]string{`delete from deed.pending where subscription = 1`},
			[]string{"message lost between content and state|orders/s|pending"},
		},
		"receipt lost": {
			[]string{`delete from deed.receipts`},
			[]string{"message lost between content and state|orders/s|finished"},
		},
		"undeclared topic's state lost": {
			[]string{`delete from deed.pending where subscription = 0`},
			[]string{"message lost between content and state|default|undeclared"},
		},
		"content lost": {
			[]string{`delete from deed.log where id = (select max(id) from deed.pending where subscription = 1)`},
			[]string{"state without content|orders/s|pending"},
		},
		"finished twice": {
			[]string{`insert into deed.receipts (subscription, claim, worker, finished_at, min_id, max_id, ids, finished, failed, lost) select subscription, claim, worker, finished_at, min_id, max_id, ids, finished, failed, lost from deed.receipts`},
			[]string{"message finished twice|orders/s|finished"},
		},
		"counts": {
			[]string{`alter table deed.receipts drop constraint receipts_adds_up`, `update deed.receipts set finished = 7`},
			[]string{"receipt does not add up|orders/s|"},
		},
		"bounds": {
			[]string{`update deed.receipts set min_id = 0`},
			[]string{"receipt does not add up|orders/s|"},
		},
		"list of subscriptions": {
			[]string{`update deed.topics set subscriptions = '{}'`},
			[]string{"list of subscriptions differs||"},
		},
		"partitions": {
			[]string{`delete from deed.partitions`},
			[]string{"partition and its record differ||", "partition and its record differ||", "partition and its record differ||", "no partition ahead||"},
		},
		"two free messages of a key": {
			[]string{
				`insert into deed.pending (subscription, slot, id, tenant_id, ord_at) select 1, l.slot, l.id, l.tenant_id, now() from deed.log l where l.id = (select max(min_id) from deed.receipts)`,
				`delete from deed.receipts`, `update deed.pending set key_hash = 7 where subscription = 1`,
			},
			[]string{"two messages of a key stand free|orders/s|pending"},
		},
		"nothing": {nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			db := pgtest.New(t)
			db.Broken()
			id := subscribe(t, db, "orders", "s")
			publish(t, db, message("orders", 1), message("orders", 2), message("undeclared", 3))
			worker, owner := db.Pool(pgtest.Worker), db.Pool(pgtest.Owner)
			got := claim(t, worker, "orders", "w", 1)
			finish(t, worker, id, got[0].Claim, got[0].ID)
			names := map[int64]string{
				0: "", got[0].ID: "finished",
				pgtest.One[int64](t, owner, `select id from deed.pending where subscription = 0`): "undeclared",
				pgtest.One[int64](t, owner, `select id from deed.pending where subscription = 1`): "pending",
			}
			for _, q := range test.breakIt {
				db.Exec(t, pgtest.Owner, q)
			}
			rows, err := owner.Query(ctx, `select invariant, coalesce(subscription, ''), coalesce(message_id, 0) from deed.verify()`)
			if err != nil {
				t.Fatal(err)
			}
			var seen []string
			var invariant, subscription string
			var message int64
			_, err = pgx.ForEachRow(rows, []any{&invariant, &subscription, &message}, func() error {
				seen = append(seen, invariant+"|"+subscription+"|"+names[message])
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, seen); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}
