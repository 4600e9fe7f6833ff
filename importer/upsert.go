package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

// UpsertOptions tune [Upsert]. The zero value works.
type UpsertOptions struct {
	Batch    int                             // contacts a transaction; default 1000
	By       string                          // who does it; default: the login
	Rejected func(*LineError)                // if not nil, is told of each row that is left out
	Conflict func(line int, others []string) // if not nil, is told of each conflict, and between which contacts
	Progress func(ContactTally)              // if not nil, is told after each transaction how it stands

	// Waiting, if not nil, is told now and then that somebody else's transaction, such as an
	// erasure that is left open, keeps a contact of these lines: that is waited for.
	Waiting func(first, last int)
}

// ContactTally is how the rows of a file fared.
type ContactTally struct {
	Created   int `json:"created"`
	Updated   int `json:"updated"`
	Unchanged int `json:"unchanged"`
	Conflicts int `json:"conflicts"` // nothing of these was stored; they are kept for somebody to decide
	Rejected  int `json:"rejected"`  // left out

	// NextLine is before which line all is done: as [ContactOptions.FromLine] it has
	// another call go on there.
	NextLine int `json:"next_line"`
}

// Stored is how many rows are of a contact as they say.
func (t ContactTally) Stored() int { return t.Created + t.Updated + t.Unchanged }

// Upsert makes or changes the contacts that rows has ([contact.Upsert]), many in a
// transaction, each of which acts for the options' tenant if there is one. A row that
// is no contact, or that the database refuses, is left out, and the others are stored
// all the same. After an error the tally says what has been stored already; the file
// may be given again, from there or whole: who is known is not made twice.
func Upsert(ctx context.Context, db DB, rows *Contacts, opts UpsertOptions) (ContactTally, error) {
	u := &upserter{db: db, rows: rows, opts: opts}
	defer u.tell()
	u.tally.NextLine = max(rows.opts.FromLine, 1)
	u.opts.Batch = cmp.Or(opts.Batch, 1000)
	if u.opts.Batch < 1 {
		return u.tally, &deed.Error{Op: "import " + rows.name, Code: deed.Invalid, Err: fmt.Errorf("a batch of %d contacts is below 1", opts.Batch)}
	}
	err := u.run(ctx)
	return u.tally, err
}

type upserter struct {
	db    DB
	rows  *Contacts
	opts  UpsertOptions
	tally ContactTally
	told  []told // of the batch, in whatever order it came to light
}

// told is what a line's owner is told of it.
type told struct {
	line int
	say  func()
}

// tell says of a batch's lines what is to be said, in their order.
func (u *upserter) tell() {
	slices.SortStableFunc(u.told, func(a, b told) int { return cmp.Compare(a.line, b.line) })
	for _, t := range u.told {
		t.say()
	}
	u.told = u.told[:0]
}

// person is a contact and where its row begins.
type person struct {
	contact.Person
	line int
}

// mostBytes is after how much of contacts, or of messages, a transaction takes no more of them.
const mostBytes = 16 << 20

func (u *upserter) run(ctx context.Context) error {
	var batch []person
	size := 0
	for {
		p, line, err := u.rows.Next()
		if bad, ok := errors.AsType[*LineError](err); ok {
			u.reject(bad)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(u.store(ctx, batch, false), err)
		}
		if err == nil {
			batch = append(batch, person{p, line})
			size += sizeOf(p)
		}
		if len(batch) == u.opts.Batch || size > mostBytes || err != nil {
			if err := u.store(ctx, batch, false); err != nil {
				return err
			}
			u.tell()
			batch, size = batch[:0], 0
		}
		if err != nil {
			u.tally.NextLine = max(u.rows.lines.line, u.tally.NextLine)
			return nil
		}
	}
}

func sizeOf(p contact.Person) int {
	size := len(p.Data)
	for _, i := range p.Identities {
		size += len(i.Value)
	}
	return size
}

func (u *upserter) reject(bad *LineError) {
	u.tally.Rejected++
	if u.opts.Rejected != nil {
		u.told = append(u.told, told{bad.Line, func() { u.opts.Rejected(bad) }})
	}
}

// store stores a batch. If the database refuses it, one question finds those that it
// refuses for what they are (sifted: it was asked); where that is not all, the halves
// are stored, and theirs, down to the ones that are refused. Where somebody else has locked
// one of them it is the same, so that whoever waits for that one has no other locked.
func (u *upserter) store(ctx context.Context, batch []person, sifted bool) error {
	if len(batch) == 0 {
		return nil
	}
	first, last := batch[0].line, batch[len(batch)-1].line
	list, err := u.patiently(ctx, batch)
	switch {
	case err == nil:
		u.count(batch, list)
	case sqlstate.Locked(err) && len(batch) > 1:
		half := len(batch) / 2
		if err := u.store(ctx, batch[:half], sifted); err != nil {
			return err
		}
		return u.store(ctx, batch[half:], sifted)
	case !errors.Is(err, contact.ErrInvalid):
		return fmt.Errorf("lines %d to %d: %w", first, last, err)
	case len(batch) == 1:
		u.reject(&LineError{first, errors.New(reasonOf(err))})
	case sifted:
		half := len(batch) / 2
		if err := u.store(ctx, batch[:half], true); err != nil {
			return err
		}
		return u.store(ctx, batch[half:], true)
	default:
		good, err := u.sift(ctx, batch)
		if err != nil {
			return fmt.Errorf("lines %d to %d: %w", first, last, err)
		}
		if err := u.store(ctx, good, true); err != nil {
			return err
		}
	}
	u.tally.NextLine = last + 1
	if u.opts.Progress != nil {
		u.opts.Progress(u.tally)
	}
	return nil
}

// patiently stores a batch in a transaction, or nothing of it; once more where others were at
// it. For one contact that somebody else has locked it waits until ctx ends.
func (u *upserter) patiently(ctx context.Context, batch []person) (list []contact.Upserted, err error) {
	for n := 1; ; n++ {
		list, err = u.transact(ctx, batch)
		locked := sqlstate.Locked(err)
		if locked && u.opts.Waiting != nil {
			u.opts.Waiting(batch[0].line, batch[len(batch)-1].line)
		}
		if again := locked && len(batch) == 1 || sqlstate.Again(err) && n < 10; !again {
			return list, err
		}
		if !work.Sleep(ctx, work.Backoff(n, 10*time.Millisecond, 500*time.Millisecond)) {
			return nil, fmt.Errorf("it waited for a transaction that keeps a contact: %w", context.Cause(ctx))
		}
	}
}

// transact stores a batch in a transaction, or nothing of it.
func (u *upserter) transact(ctx context.Context, batch []person) (list []contact.Upserted, err error) {
	persons := personsOf(batch)
	err = pgx.BeginFunc(ctx, u.db, func(tx pgx.Tx) (err error) {
		// Others wait for what this one has locked, while it waits.
		if _, err := tx.Exec(ctx, `set local lock_timeout = '500ms'`); err != nil {
			return err
		}
		if owner := u.rows.opts.Tenant; owner != nil {
			if err := tenant.Set(ctx, tx, *owner); err != nil {
				return err
			}
		}
		list, err = contact.Upsert(ctx, tx, u.opts.By, persons...)
		return err
	})
	return list, err
}

func personsOf(batch []person) []contact.Person {
	persons := make([]contact.Person, len(batch))
	for i := range batch {
		persons[i] = batch[i].Person
	}
	return persons
}

func (u *upserter) count(batch []person, list []contact.Upserted) {
	for i, r := range list {
		switch r.Outcome {
		case contact.Created:
			u.tally.Created++
		case contact.Updated:
			u.tally.Updated++
		case contact.Unchanged:
			u.tally.Unchanged++
		case contact.Full:
			u.reject(&LineError{batch[i].line, errors.New("with those that the contact has it would have over 100 identities")})
		case contact.Conflicting:
			u.tally.Conflicts++
			if u.opts.Conflict != nil {
				u.told = append(u.told, told{batch[i].line, func() { u.opts.Conflict(batch[i].line, r.Others) }})
			}
		}
	}
}

// sift rejects those of a batch that the database refuses for what they are, and
// returns the others.
func (u *upserter) sift(ctx context.Context, batch []person) (good []person, err error) {
	var problems []contact.Problem
	err = pgx.BeginFunc(ctx, u.db, func(tx pgx.Tx) (err error) {
		problems, err = contact.Check(ctx, tx, personsOf(batch)...)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, p := range batch {
		if len(problems) > 0 && problems[0].N == i+1 {
			u.reject(&LineError{p.line, errors.New(problems[0].Text)})
			problems = problems[1:]
			continue
		}
		good = append(good, p)
	}
	return good, nil
}

// reasonOf is why the database refuses one contact, without what says nothing here.
func reasonOf(err error) string {
	text := err.Error()
	for _, known := range []string{"deed: upsert contacts: invalid: ", "contact 1: "} {
		text = strings.TrimPrefix(text, known)
	}
	return text
}
