package doctor_test

import (
	"testing"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
)

// Messages that wait for a person, and those that no relay takes, are found by their
// source.
func inboundTroubles(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	worker := db.Pool(pgtest.Worker)
	find(t, examine(t, worker, impatient), "inbound-held", doctor.OK, "")
	for _, id := range []string{"1", "2", "3"} {
		db.Exec(t, pgtest.Worker, `select deed.accept_messages('support', array[$1], array['telegram'], array['sender' || $1], array[''], array['canary'], array['{}'], '', 'link',
			'00000000-0000-0000-0000-000000000000', 'w')`, id)
	}
	db.Exec(t, pgtest.Worker, `
		select deed.finish_messages(array[c.id], array[c.claim], array['dispatch_failed'], array['no'], array[null]::float8[], 1, 'w')
		from deed.claim_messages('support', 1, '1 minute', 10, 'w') c`)
	// Of this one the platform is expected to repeat it.
	db.Exec(t, pgtest.Worker, `
		select deed.finish_messages(array[c.id], array[c.claim], array['dispatch_failed'], array['no'], array[null]::float8[], 10, 'w')
		from deed.claim_messages('support', 1, '1 minute', 10, 'w') c`)
	find(t, examine(t, worker, doctor.Options{}), "inbound-failed", doctor.OK, "")
	found := examine(t, worker, impatient)
	says(t, find(t, found, "inbound-held", doctor.Warn, "support"), "1 messages", "wait for a person")
	says(t, find(t, found, "inbound-failed", doctor.Warn, "support"), "1 messages", "not repeated")
	says(t, find(t, found, "inbound-unattended", doctor.Warn, "support"), "1 messages", "nobody takes")
}
