package doctor_test

import (
	"testing"

	"github.com/deedhq/deed/doctor"
	"github.com/deedhq/deed/internal/pgtest"
)

func callRunning(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "call-running", doctor.OK, "")
	db.Exec(t, pgtest.Worker, `
		select deed.report_calls(gen_random_uuid(), 'w1', array[s.subscription], array[17::bigint], array[gen_random_uuid()], array[1], array[interval '20 minutes'])
		from deed.subscribe('orders', 's') s`)
	says(t, find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "call-running", doctor.Warn, "orders/s"), "message 17", "20m", "w1")
}

func sinkPaused(t *testing.T, _ *scene) {
	db := pgtest.New(t)
	find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "sink-paused", doctor.OK, "")
	db.Exec(t, pgtest.Worker, `
		select deed.report_pauses(gen_random_uuid(), 'w1', array[s.subscription], array['Status 503'], array[interval '20 minutes'])
		from deed.subscribe('orders', 's') s`)
	says(t, find(t, examine(t, db.Pool(pgtest.Admin), doctor.Options{}), "sink-paused", doctor.Warn, "orders/s"), "Status 503", "20m", "w1")
}
