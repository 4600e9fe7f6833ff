package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// overdue is a context whose time is over, as after --timeout, when it is cancelled.
type overdue struct{ context.Context }

func (o overdue) Err() error {
	if o.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// Who follows a run until the time for that is over is not told that it has ended well; who has stopped it by Ctrl-C is told nothing.
func TestRunWatch_TimeThatIsOverIsNoEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.App, `select deed.put_plan(convert_to($1, 'UTF8'))`, sleepingPlan)
	id := pgtest.One[string](t, db.Pool(pgtest.App), `select run_id::text from deed.start_run('p', '1', 'a')`)
	for name, c := range map[string]struct {
		args   []string
		prints string
		late   bool
		code   int
	}{
		"watch":          {[]string{"run", "watch", id}, "the run", true, exitPartly},
		"watch, Ctrl-C":  {[]string{"run", "watch", id}, "the run", false, exitOK},
		"events":         {[]string{"run", "events", id, "--follow"}, "RunStarted", true, exitPartly},
		"events, Ctrl-C": {[]string{"run", "events", id, "--follow"}, "RunStarted", false, exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stopped, stop := context.WithCancel(t.Context())
			defer stop()
			ctx := stopped
			if c.late {
				ctx = overdue{stopped}
			}
			var out, errOut output
			ended := make(chan int, 1)
			go func() {
				ended <- execute(ctx, slices.Concat([]string{"--database-url", db.URL(pgtest.Worker)}, c.args), strings.NewReader(""), &out, &errOut)
			}()
			eventually(t, c.prints, func() bool { return strings.Contains(out.String(), c.prints) })
			stop()
			code := <-ended
			if said := errOut.String(); code != c.code || c.late != strings.Contains(said, "run "+id+" has not ended") {
				t.Errorf("exit status %d, said %q, want %d", code, said, c.code)
			}
		})
	}
}
