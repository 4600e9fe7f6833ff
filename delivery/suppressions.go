package delivery

import (
	"context"
	"encoding/base64"
	"encoding/json"
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
	Tenant    string    `json:"tenant"`
	Channel   Channel   `json:"channel"`
	Address   string    `json:"address"`
	Reason    string    `json:"reason"`
	Actor     string    `json:"actor"`
	CreatedAt time.Time `json:"created_at"`
}

// Suppress ends writing to addresses over a channel, and returns how many were
// new. It holds from the next attempt on, for what is reserved too. owner nil:
// the tenant that db has set. Errors: [deed.Invalid], also unless act says who and
// why; [deed.Forbidden].
func Suppress(ctx context.Context, db deed.DB, owner *tenant.ID, channel Channel, addresses []string, act audit.Act) (int64, error) {
	return suppress(ctx, db, "suppress", query.Suppress, owner, channel, addresses, act)
}

// Unsuppress allows writing to addresses again, and returns how many were
// suppressed. What was skipped stays skipped.
func Unsuppress(ctx context.Context, db deed.DB, owner *tenant.ID, channel Channel, addresses []string, act audit.Act) (int64, error) {
	return suppress(ctx, db, "unsuppress", query.Unsuppress, owner, channel, addresses, act)
}

func suppress(ctx context.Context, db deed.DB, op, statement string, owner *tenant.ID, channel Channel, addresses []string, act audit.Act) (int64, error) {
	var id any
	if owner != nil {
		id = owner.String()
	}
	rows, err := db.Query(ctx, statement, string(channel), nonNil(addresses), act.Reason, act.By, id)
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
	Address string // however it is written
	Cursor  string // [page.Of.Next] of the page before
	Limit   int    // default 100
}

// Suppressions lists what db may see of them, newest first. Those of a channel are
// looked for among the newest 20,000, and the page says how far back that was.
// Errors: [deed.Invalid].
func Suppressions(ctx context.Context, db deed.DB, f SuppressionFilter) (list page.Of[Suppression], err error) {
	const op = "suppressions"
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Channel != "" && !slices.Contains([]Channel{Email, SMS, Voice, Social, Chat, Webhook}, f.Channel) {
		return list, invalidf(op, "there is no channel %q: it is email, sms, voice, social, chat or webhook", f.Channel)
	}
	if err := checkCount(op, "limit", f.Limit, 1); err != nil {
		return list, err
	}
	at, ok := suppressionPlaceOf(f.Cursor)
	if !ok {
		return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	each := f.Limit
	if f.Channel != "" {
		each = max(lookMost, f.Limit)
	}
	var owner any
	if f.Tenant != nil {
		owner = f.Tenant.String()
	}
	rows, err := db.Query(ctx, query.LookAtSuppressions, at.At, at.Tenant, at.Channel, at.Address, each, f.Limit,
		owner, sqlvalue.NullIfZero(string(f.Channel)), sqlvalue.NullIfZero(f.Address))
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
		list.Next = suppressionPlace{s.CreatedAt, s.Tenant, string(s.Channel), s.Address}.cursor()
	case looked >= each && f.Address == "":
		list.Next, list.LookedTo = last.cursor(), &last.At
	}
	return list, nil
}

// collectSuppressions reads a look: how many rows it read, and the last of them.
func collectSuppressions(rows pgx.Rows, looked *int, last *suppressionPlace) (list []Suppression, err error) {
	defer rows.Close()
	for rows.Next() {
		var at, created *time.Time
		var owner, channel, address, of, over, to, reason, actor *string
		if err := rows.Scan(looked, &at, &owner, &channel, &address, &of, &over, &to, &reason, &actor, &created); err != nil {
			return nil, err
		}
		if at != nil {
			*last = suppressionPlace{*at, *owner, *channel, *address}
		}
		if created != nil {
			list = append(list, Suppression{*of, Channel(*over), *to, *reason, *actor, *created})
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
