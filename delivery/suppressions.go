package delivery

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// Suppression is an address that is not written to.
type Suppression struct {
	Tenant    string     `json:"tenant"`
	Channel   Channel    `json:"channel"`
	Address   string     `json:"address"`
	Purpose   string     `json:"purpose"` // "": for nothing at all; [AnyPurpose]; or for that one
	Reason    string     `json:"reason"`
	Actor     string     `json:"actor"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // nil: it holds for ever
}

// AnyPurpose is the purpose of a suppression that stops all that has one, and
// nothing transactional: what a complaint asks for.
const AnyPurpose = "*"

// Coverage is what a suppression keeps from its addresses (D11).
type Coverage struct {
	// Channel is over which they are not written to. Required.
	Channel Channel
	// Purpose is for what: one that deliveries have ([Delivery.Purpose]), or
	// [AnyPurpose]. Default: everything, with a purpose or without, as after a hard
	// bounce.
	Purpose string
	// For is how long it holds, by the database's clock, as after a mailbox that was
	// full. Default: for ever.
	For time.Duration
}

// Suppress ends writing to addresses, as far as of covers it, and returns how many
// were new or end later than they did: none ends earlier for it. It holds from the
// next attempt on, for what is reserved too. owner nil: the tenant that db has set.
// Errors: [deed.Invalid], also unless act says who and why; [deed.Forbidden].
func Suppress(ctx context.Context, db deed.DB, owner *tenant.ID, of Coverage, addresses []string, act audit.Act) (int64, error) {
	if of.For < 0 {
		return 0, invalidf("suppress", "a suppression cannot hold for %s", of.For)
	}
	return suppress(ctx, db, "suppress", query.Suppress, owner, of, addresses, act, sqlvalue.NullIfZero(of.For.Seconds()))
}

// Unsuppress allows writing to addresses again, as far as that was suppressed by the
// same channel and purpose, and returns how many were. What was skipped stays
// skipped; what is suppressed for another purpose stays so. [Coverage.For] does not
// matter. Errors as of [Suppress].
func Unsuppress(ctx context.Context, db deed.DB, owner *tenant.ID, of Coverage, addresses []string, act audit.Act) (int64, error) {
	return suppress(ctx, db, "unsuppress", query.Unsuppress, owner, of, addresses, act)
}

func suppress(ctx context.Context, db deed.DB, op, statement string, owner *tenant.ID, of Coverage, addresses []string, act audit.Act, more ...any) (int64, error) {
	var id any
	if owner != nil {
		id = owner.String()
	}
	args := append([]any{string(of.Channel), nonNil(addresses), act.Reason, act.By, id, of.Purpose}, more...)
	rows, err := db.Query(ctx, statement, args...)
	if err != nil {
		return 0, deed.WrapError(op, err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	return n, deed.WrapError(op, err)
}

// SuppressionFilter chooses suppressions; zero fields choose all.
type SuppressionFilter struct {
	Tenant  *tenant.ID
	Channel Channel
	Address string  // however it is written
	Purpose *string // nil: whatever for
	Cursor  string  // [page.Of.Next] of the page before
	Limit   int     // default 100
}

var purposeForm = regexp.MustCompile(`^(\*|[A-Za-z0-9._-]{0,100})$`)

// Suppressions lists what db may see of them, newest first. Those of a channel or
// a purpose are looked for among the newest 20,000, and the page says how far back that was.
// Errors: [deed.Invalid].
func Suppressions(ctx context.Context, db deed.DB, f SuppressionFilter) (list page.Of[Suppression], err error) {
	const op = "suppressions"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Channel != "" && !slices.Contains([]Channel{Email, SMS, Voice, Social, Chat, Webhook}, f.Channel) {
		return list, invalidf(op, "there is no channel %q: it is email, sms, voice, social, chat or webhook", f.Channel)
	}
	if f.Purpose != nil && !purposeForm.MatchString(*f.Purpose) {
		return list, invalidf(op, "purpose %q is not 1 to 100 characters of A-Z a-z 0-9 . _ -, * for those of all purposes, or empty for those of everything", errortext.Clip(*f.Purpose))
	}
	if err := checkCount(op, "limit", f.Limit, 1); err != nil {
		return list, err
	}
	at, ok := suppressionPlaceOf(f.Cursor)
	if !ok {
		return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	each := f.Limit
	if f.Channel != "" || f.Purpose != nil {
		each = max(lookMost, f.Limit)
	}
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	rows, err := db.Query(ctx, query.LookAtSuppressions, at.At, at.Tenant, at.Channel, at.Address, at.Purpose, each, f.Limit,
		owner, sqlvalue.NullIfZero(string(f.Channel)), sqlvalue.NullIfZero(f.Address), f.Purpose)
	if err != nil {
		return list, deed.WrapError(op, err)
	}
	var looked int
	var last suppressionPlace
	list.Items, err = collectSuppressions(rows, &looked, &last)
	switch {
	case err != nil:
		return page.Of[Suppression]{}, deed.WrapError(op, err)
	case len(list.Items) == f.Limit:
		s := list.Items[f.Limit-1]
		list.Next = suppressionPlace{s.CreatedAt, s.Tenant, string(s.Channel), s.Address, s.Purpose}.cursor()
	case looked >= each && f.Address == "":
		list.Next, list.LookedTo = last.cursor(), &last.At
	}
	return list, nil
}

// collectSuppressions reads a look: how many rows it read, and the last of them.
func collectSuppressions(rows pgx.Rows, looked *int, last *suppressionPlace) (list []Suppression, err error) {
	defer rows.Close()
	for rows.Next() {
		var at, created, expires *time.Time
		var owner, channel, address, purpose, of, over, to, what, reason, actor *string
		if err := rows.Scan(looked, &at, &owner, &channel, &address, &purpose, &of, &over, &to, &what, &reason, &actor, &created, &expires); err != nil {
			return nil, err
		}
		if at != nil {
			*last = suppressionPlace{*at, *owner, *channel, *address, *purpose}
		}
		if created != nil {
			list = append(list, Suppression{*of, Channel(*over), *to, *what, *reason, *actor, *created, expires})
		}
	}
	return list, rows.Err()
}

// suppressionPlace is where a suppression stands in the list of all.
type suppressionPlace struct {
	At      time.Time
	Tenant  string
	Channel string
	Address string
	Purpose string
}

func (p suppressionPlace) cursor() string {
	text, _ := json.Marshal(p) // a time and texts always can be
	return base64.RawURLEncoding.EncodeToString(text)
}

// suppressionPlaceOf reads a cursor; "" is the place before all.
func suppressionPlaceOf(cursor string) (p suppressionPlace, ok bool) {
	if cursor == "" {
		return suppressionPlace{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Tenant: tenant.Default.String()}, true
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return suppressionPlace{}, false
	}
	_, err = tenant.Parse(p.Tenant)
	return p, err == nil && !p.At.IsZero() && p.Channel != "" && p.Address != ""
}
