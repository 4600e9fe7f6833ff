package deed_test

import (
	"context"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/pgtest"
)

// A message that cannot be shown through a face stops nobody's claim: it is
// counted, dies with a reason, and an operator discards it. The relations show
// it as a string.
func TestContract_O6_OneMessageNeverStopsAFace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	claims := map[string]string{
		"app": `select payload::text from app.outbox_claim(10, '` + tokenA + `', null)`,
		"m10": `select payload::text from m10_recovery.claim_outbox_events('p', 10)`,
	}
	for name, c := range map[string]struct{ face, payload, reason string }{
		"app, digits": {"app", vast, "digits"}, "m10, digits": {"m10", vast, "digits"},
		"app, depth": {"app", deep(100_000), "1000 arrays"}, "m10, depth": {"m10", deep(100_000), "1000 arrays"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := faces(t)
			claim := claims[c.face]
			published := publish(t, db, deed.Message{Topic: "t", Payload: []byte(`1`)}, deed.Message{Topic: "t", Payload: []byte(`2`)}, deed.Message{Topic: "t", Payload: []byte(`3`)})
			// Published before such were refused.
			db.Exec(t, pgtest.Owner, `update deed.log set payload = convert_to(`+c.payload+`, 'UTF8') where id = $1`, published[1].Seq)
			if got := strings.Join(list(t, db.Pool(pgtest.Worker), claim), " "); got != "1 3" {
				t.Errorf("claimed %.100s, want 1 and 3", got)
			}
			if got := strings.Join(list(t, db.Pool(pgtest.Worker), claim), " "); got != "" {
				t.Errorf("then claimed %.100s", got)
			}
			relation := map[string]string{"app": "public.outbox", "m10": "m10_recovery.outbox"}[c.face]
			if got := list(t, db.Pool(pgtest.Worker), `select jsonb_typeof(payload) from `+relation+` order by id`); strings.Join(got, " ") != "number string number" {
				t.Errorf("shown as %s", got)
			}
			o := operator(t, db)
			dead, err := o.Dead(ctx, admin.DeadFilter{})
			if err != nil || len(dead.Items) != 1 || dead.Items[0].Attempts != 1 || !strings.Contains(dead.Items[0].LastError, c.reason) {
				t.Fatalf("dead are %+v, %v", dead, err)
			}
			if n, err := o.Discard(ctx, published[1].Seq, "", audit.Act{Reason: "an attack"}); n != 1 || err != nil {
				t.Errorf("discarded %d, %v", n, err)
			}
		})
	}
}
