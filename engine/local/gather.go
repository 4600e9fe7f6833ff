package local

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/internal/sqlstate"
)

// gatherer has what many bring recorded in few statements.
type gatherer struct {
	do        func(ctx context.Context, list []*record) ([]said, error) // in one statement
	records   chan *record
	recording chan struct{} // taken by the statement that records
	silent    chan struct{} // closed when nothing more is recorded
}

func newGatherer(do func(context.Context, []*record) ([]said, error)) *gatherer {
	return &gatherer{do: do, records: make(chan *record), recording: make(chan struct{}, 1), silent: make(chan struct{})}
}

// recorders is how many statements record inner steps at a time.
const recorders = 2

// mostRecords is how many inner steps gather for one statement.
const mostRecords = 500

// patience is how long a statement that records is waited for before another one is made beside it.
const patience = 20 * time.Millisecond

// errSilent is what records get that come when the engine has stopped.
var errSilent = errors.New("the engine has stopped")

// write returns once r is recorded, or will not be. It is not cut short: statements have a deadline.
func (g *gatherer) write(r *record) (said, error) {
	select {
	case g.records <- r:
	case <-g.silent:
		return said{}, errSilent
	}
	a := <-r.answer
	return a.said, a.err
}

// awaitTurn waits until no other statement records, so that as many as can be go in the next: each costs as much as ten of what it
// records. It reports whether it is so: one that is held up is waited for no longer than a while.
func (g *gatherer) awaitTurn() bool {
	select {
	case g.recording <- struct{}{}:
		return true
	case <-time.After(patience):
		return false
	}
}

// run records inner steps until the engine has stopped, all that wait at a time in one statement: the next ones gather while it is under
// way. It runs [recorders] times.
func (g *gatherer) run(ctx context.Context) {
	for {
		var list []*record
		select {
		case <-g.silent:
			return
		case r := <-g.records:
			list = append(list, r)
		}
		turn := g.awaitTurn()
		for more := true; more && len(list) < mostRecords; {
			select {
			case r := <-g.records:
				list = append(list, r)
			default:
				more = false
			}
		}
		g.recordAll(ctx, list)
		if turn {
			<-g.recording
		}
	}
}

// recordAll records list, one by one where together one is refused, or its run is locked by somebody: none waits for another. A run that is locked is
// asked for once, whatever of it is in the list: each would take as long, and the others wait behind it. So would each where no answer comes: those who have
// brought them come again.
func (g *gatherer) recordAll(ctx context.Context, list []*record) {
	answers, err := g.do(ctx, list)
	if err == nil || len(list) == 1 || unanswered(err) {
		tellAll(list, answers, err)
		return
	}
	locked := map[string]error{} // by run
	for n, r := range list {
		alone := []*record{r}
		if err := locked[r.it.run]; err != nil {
			tellAll(alone, nil, err)
			continue
		}
		answers, err := g.do(ctx, alone)
		if unanswered(err) {
			tellAll(list[n:], nil, err)
			return
		}
		if sqlstate.Locked(err) {
			locked[r.it.run] = err
		}
		tellAll(alone, answers, err)
	}
}

// unanswered reports whether err is of a database that cannot be reached, or has not answered in time: what it says itself may be of one record alone.
func unanswered(err error) bool {
	_, said := errors.AsType[*pgconn.PgError](err)
	return err != nil && !said && passing(err)
}

// tellAll tells those who have brought list what was said of it.
func tellAll(list []*record, answers []said, err error) {
	for k, r := range list {
		a := answer{err: err}
		if err == nil {
			a.said = answers[k]
		}
		r.answer <- a
	}
}
