package contact

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// State is what a contact says of being written to.
type State string

// The states.
const (
	Granted State = "granted"
	// Revoked says that the contact takes it back: its addresses are suppressed for
	// that purpose, those that it gets later, too.
	Revoked State = "revoked"
	// Pending says that the contact was asked, and has seven days to confirm. It
	// changes nothing that was said before.
	Pending State = "pending"
)

// channels are those of which contacts say something.
var channels = []string{"email", "sms", "voice", "social", "chat", "webhook"}

// Word is what a contact has said of one purpose.
type Word struct {
	Contact string `json:"contact"` // its id
	Channel string `json:"channel"` // email, sms, voice, social, chat or webhook
	Purpose string `json:"purpose"` // what is written for, 1 to 100 characters of A-Z a-z 0-9 . _ -
	State   State  `json:"state"`
	Source  string `json:"source"` // where it was said, such as signup-form; up to 200 characters
	// Evidence is a JSON object of up to 8 KiB that shows it, such as the form's text
	// and the time. It goes with the contact's erasure. Default: none.
	Evidence json.RawMessage `json:"evidence,omitempty"`
}

// SetConsents notes what contacts of the tenant that db has set agree to, in the order
// in which they said it, and returns what holds by now for each: "" if nothing. What
// is revoked is suppressed in the same transaction, and a grant lifts what stood only
// for a revocation. by is who notes it; default: the login. Errors: [ErrInvalid],
// [ErrNotFound], [ErrConflict] for a contact that was erased, [ErrForbidden].
func SetConsents(ctx context.Context, db DB, by string, words ...Word) ([]State, error) {
	return setConsents(ctx, db, nil, by, words)
}

// SetConsentsFor is [SetConsents] for a tenant that db has not set, for logins that
// cross tenants.
func SetConsentsFor(ctx context.Context, db DB, owner tenant.ID, by string, words ...Word) ([]State, error) {
	return setConsents(ctx, db, owner.String(), by, words)
}

func setConsents(ctx context.Context, db DB, owner any, by string, words []Word) ([]State, error) {
	const op = "set consents"
	if len(words) == 0 {
		return nil, nil
	}
	var contacts, channels, purposes, states, sources []string
	var evidence []*string
	for i := range words {
		w := &words[i]
		if err := checkIDs(op, w.Contact); err != nil {
			return nil, err
		}
		if !sqlvalue.IsText(w.Channel + w.Purpose + string(w.State) + w.Source) {
			return nil, invalidf(op, "consent %d: channel, purpose, state or source are not UTF-8, or have a NUL", i+1)
		}
		if problem := evidenceProblem(w.Evidence); problem != "" {
			return nil, invalidf(op, "consent %d: %s", i+1, problem)
		}
		contacts, channels, purposes = append(contacts, w.Contact), append(channels, w.Channel), append(purposes, w.Purpose)
		states, sources = append(states, string(w.State)), append(sources, w.Source)
		evidence = append(evidence, nil)
		if len(w.Evidence) > 0 {
			text := string(w.Evidence)
			evidence[i] = &text
		}
	}
	rows, err := db.Query(ctx, query.SetConsents, contacts, channels, purposes, states, sources, evidence, owner, by)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[State])
	return list, wrap(op, err)
}

// ConfirmConsent notes that what a contact was asked for is granted: somebody has come
// back by a link that only its address was given ([Links.Confirm]). It reports
// whether that is news. evidence is as in [Word]. owner nil: the tenant that db has
// set. Errors: [ErrNotFound] where nobody has asked, [ErrConflict] where the seven
// days are over, or it was revoked since, [ErrInvalid], [ErrForbidden].
func ConfirmConsent(ctx context.Context, db DB, owner *tenant.ID, by string, asked Asked, evidence json.RawMessage) (bool, error) {
	const op = "confirm a consent"
	if err := checkIDs(op, asked.Contact); err != nil {
		return false, err
	}
	if problem := evidenceProblem(evidence); problem != "" {
		return false, invalidf(op, "%s", problem)
	}
	return one[bool](ctx, db, op, query.ConfirmConsent, asked.Contact, asked.Channel, asked.Purpose, sqlvalue.NullIfZero(string(evidence)), id(owner), by)
}

// Consent is what holds by now for one purpose.
type Consent struct {
	Channel string `json:"channel"`
	Purpose string `json:"purpose"`
	// State is the last word of the contact and of those that were merged into it,
	// among which a revocation wins until a later grant; "" if it was asked, and did
	// not answer in time.
	State State     `json:"state,omitempty"`
	At    time.Time `json:"at"` // when that was said
	// PendingUntil is how long the contact has to answer what it was asked since.
	PendingUntil *time.Time `json:"pending_until,omitempty"`
}

// Consents returns what a contact agrees to, by channel and purpose; what was said to
// one that it has been merged into is its own. Errors: [ErrNotFound], [ErrInvalid].
func Consents(ctx context.Context, db DB, of string) ([]Consent, error) {
	const op = "consents"
	if _, err := Get(ctx, db, of); err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, query.Consents, of)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Consent])
	return list, wrap(op, err)
}

// Noted is a word as it was kept.
type Noted struct {
	Word
	Tenant    string     `json:"tenant"`
	By        string     `json:"by"`
	At        time.Time  `json:"at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // until when it is to be confirmed, if Pending
	n         int64
}

// WordFilter chooses words; zero fields choose all.
type WordFilter struct {
	Tenant  *tenant.ID
	Contact string // and all that were merged into it
	Channel string
	Purpose string
	Cursor  string // [page.Of.Next] of the page before
	Limit   int    // default 100
}

// Words returns what contacts have said, newest first. Errors: [ErrInvalid].
func Words(ctx context.Context, db DB, f WordFilter) (list page.Of[Noted], err error) {
	const op = "words"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if err := sqlvalue.Count("limit", f.Limit, 1); err != nil {
		return list, invalidf(op, "%v", err)
	}
	if f.Contact != "" {
		if err := checkIDs(op, f.Contact); err != nil {
			return list, err
		}
	}
	if f.Channel != "" && !slices.Contains(channels, f.Channel) {
		return list, invalidf(op, "there is no channel %q: it is %s", errortext.Clip(f.Channel), strings.Join(channels, ", "))
	}
	below, err := numberBelow(f.Cursor)
	if err != nil {
		return list, invalidf(op, "the cursor is none of this list's")
	}
	rows, err := db.Query(ctx, query.Words, id(f.Tenant), sqlvalue.NullIfZero(f.Contact), sqlvalue.NullIfZero(f.Channel), sqlvalue.NullIfZero(f.Purpose), below, f.Limit)
	if err != nil {
		return list, wrap(op, err)
	}
	list.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Noted, err error) {
		err = row.Scan(&w.n, &w.Tenant, &w.Contact, &w.Channel, &w.Purpose, &w.State, &w.Source, (*[]byte)(&w.Evidence), &w.By, &w.At, &w.ExpiresAt)
		return w, err
	})
	if err == nil && len(list.Items) == f.Limit {
		list.Next = fmt.Sprint(list.Items[f.Limit-1].n)
	}
	return list, wrap(op, err)
}
