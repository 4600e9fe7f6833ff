package admin

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// What one call reads of the log at the most. A look that ends there says so, and
// how to go on.
const (
	lookMost  = 20_000 // messages
	lookSteps = 40     // statements, as where there are gaps between the numbers
	lookWide  = 200    // numbers of the first step; those that follow are wider
)

// Filter selects messages; zero fields select all.
type Filter struct {
	Topic   string
	Key     string
	Tenant  *tenant.ID
	Since   time.Duration // published at most this long ago, by the database's clock
	Cursor  string        // [page.Of.Next] of the page before: the number from which on downwards
	Limit   int           // default 100, at most 10,000
	Payload bool          // fill Payload
}

// Messages lists messages of the log, newest first. Those of a topic are found by
// it, however many others there are; a key or a tenant is looked for among the
// newest 20,000 messages, or those of the topic, and the page says how far back that
// was. Of a topic that was removed and declared again, what was published before
// is found for the last three removals. An application's login sees its tenant's.
// Errors: [deed.Invalid].
func (c *Client) Messages(ctx context.Context, f Filter) (page.Of[MessageRecord], error) {
	var page page.Of[MessageRecord]
	if f.Limit == 0 {
		f.Limit = 100
	}
	if f.Limit < 0 || f.Limit > 10000 {
		return page, invalidf("messages", "limit %d is not from 1 to 10000", f.Limit)
	}
	if f.Since < 0 {
		return page, invalidf("messages", "since %s is negative", f.Since)
	}
	upto, err := readNumber("messages", f.Cursor)
	if err != nil {
		return page, err
	}
	page, err = c.messages(ctx, f, upto)
	return page, deed.WrapError("messages", err)
}

func (c *Client) messages(ctx context.Context, f Filter, upto int64) (page page.Of[MessageRecord], err error) {
	var now time.Time
	var readsTopics bool // a login of an application does not, and looks through its tenant's messages
	if err := c.pool.QueryRow(ctx, query.LookBegins).Scan(&now, &readsTopics); err != nil {
		return page, err
	}
	l := &look{client: c, filter: f, upto: upto}
	if f.Since > 0 {
		after := now.Add(-f.Since)
		l.after = &after
	}
	if readsTopics && f.Topic != "" {
		err = l.throughTopic(ctx)
	} else {
		err = l.throughLog(ctx)
	}
	if err != nil {
		return page, err
	}
	each := f.Limit + 1
	if f.Topic != "" || f.Key != "" || f.Tenant != nil {
		each = max(each, lookMost)
	}
	args := append([]any{upto, each, f.Limit, sqlvalue.NullIfZero(f.Topic)}, l.criteria()...)
	kept, aside, err := c.look(ctx, query.LookAtKept, args)
	if err != nil {
		return page, err
	}
	l.merge(kept, aside)
	return l.page(), nil
}

// readNumber reads the cursor of a list that is ordered by numbers, newest first:
// the highest that is left.
func readNumber(op, cursor string) (int64, error) {
	if cursor == "" {
		return math.MaxInt64, nil
	}
	n, err := strconv.ParseInt(cursor, 10, 64)
	if err != nil || n < 1 {
		return 0, invalidf(op, "cursor %q is none of this list's", errortext.Clip(cursor))
	}
	return n, nil
}

// place is where a list of pending rows goes on, at that number and subscription.
type place struct {
	seq          int64
	subscription int
}

func (p place) String() string { return fmt.Sprintf("%d.%d", p.seq, p.subscription) }

// readPlace reads the cursor of such a list; start is where it begins without one.
func readPlace(op, cursor string, start place) (p place, err error) {
	if cursor == "" {
		return start, nil
	}
	seq, subscription, _ := strings.Cut(cursor, ".")
	n, err := strconv.ParseInt(subscription, 10, 32)
	if err == nil {
		p.subscription = int(n)
		p.seq, err = strconv.ParseInt(seq, 10, 64)
	}
	if err != nil || p.seq < 1 || p.subscription < -1 {
		return p, invalidf(op, "cursor %q is none of this list's", errortext.Clip(cursor))
	}
	return p, nil
}

// look goes down the log from a number on, in bounded steps, until it has found
// enough.
type look struct {
	client *Client
	filter Filter
	after  *time.Time // what filter.Since means, by the database's clock

	found  []MessageRecord
	upto   int64      // the next step looks at this number and below; 0: it has looked at all
	looked int        // messages so far
	oldest *time.Time // of those
	cut    bool       // it ended early
}

// left is how many are still to be found.
func (l *look) left() int { return l.filter.Limit - len(l.found) }

// isOver reports whether everything below what was looked at, down to oldest, is from
// before the time that was asked for. Numbers and times are of one order but for
// what is published at the same time, of which an hour is enough.
func (l *look) isOver(oldest *time.Time) bool {
	return l.after != nil && oldest != nil && oldest.Before(l.after.Add(-time.Hour))
}

// criteria are the last arguments of the statements that look.
func (l *look) criteria() []any {
	var owner any
	if l.filter.Tenant != nil {
		owner = l.filter.Tenant.String()
	}
	return []any{sqlvalue.NullIfZero(l.filter.Key), owner, l.after, l.filter.Payload}
}

// throughTopic looks at the newest of each slot of the topic, and goes on from where
// something may be missing: where one slot has most of them, by a few at first.
func (l *look) throughTopic(ctx context.Context) error {
	each := l.filter.Limit/32 + 6
	if l.filter.Key != "" { // they are all in one slot
		each = l.filter.Limit + 1
	}
	for l.upto > 0 && l.left() > 0 {
		if l.cut = l.looked >= max(lookMost, 3*l.filter.Limit); l.cut {
			return nil
		}
		args := append([]any{l.filter.Topic, l.upto, each, l.left()}, l.criteria()...)
		if err := l.step(ctx, query.LookByTopic, args); err != nil {
			return err
		}
		each *= 2
	}
	return nil
}

// throughLog looks at all that was published, partition by partition.
func (l *look) throughLog(ctx context.Context) error {
	rows, err := l.client.pool.Query(ctx, query.LogExtents)
	if err != nil {
		return err
	}
	extents, err := pgx.CollectRows(rows, pgx.RowToStructByPos[extent])
	if err != nil {
		return err
	}
	wide, steps := int64(max(lookWide, 2*l.filter.Limit)), 0
	for _, e := range extents {
		for l.upto = min(l.upto, e.Upto); l.upto >= e.From; {
			if l.left() <= 0 {
				return nil
			}
			if l.cut = l.looked >= lookMost || steps == lookSteps; l.cut {
				return nil
			}
			from := max(l.upto-wide, e.From-1)
			if l.upto > e.Last { // what came late, of which there is next to nothing
				from = e.Last
			}
			args := append([]any{from, l.upto, l.left(), sqlvalue.NullIfZero(l.filter.Topic)}, l.criteria()...)
			if err := l.step(ctx, query.LookByNumber, args); err != nil || l.upto == 0 {
				return err
			}
			wide = min(4*wide, lookMost)
			steps++
		}
	}
	l.upto = 0
	return nil
}

// extent is a partition that has messages: see deed.log_extents.
type extent struct{ From, Last, Upto int64 }

// step looks once, and from there the next step goes on.
func (l *look) step(ctx context.Context, statement string, args []any) error {
	found, seen, err := l.client.look(ctx, statement, args)
	if err != nil {
		return err
	}
	l.found = append(l.found, found...)
	l.looked += seen.Looked
	if seen.Oldest != nil {
		l.oldest = seen.Oldest
	}
	switch {
	case len(found) > 0 && l.left() <= 0:
		l.upto = found[len(found)-1].Seq - 1
	case l.isOver(l.oldest):
		l.upto = 0
	default:
		l.upto = seen.Above
	}
	return nil
}

// seen is what a statement says of the messages that it has looked at.
type seen struct {
	Looked int
	Above  int64
	Oldest *time.Time
}

// look asks one of the statements that look.
func (c *Client) look(ctx context.Context, statement string, args []any) (found []MessageRecord, s seen, err error) {
	rows, err := c.pool.Query(ctx, statement, args...)
	if err != nil {
		return nil, s, err
	}
	defer rows.Close()
	for rows.Next() {
		r, ok, err := scanLooked(rows, &s)
		if err != nil {
			return nil, s, err
		}
		if ok {
			found = append(found, r)
		}
	}
	return found, s, rows.Err()
}

// merge adds what retention has kept of partitions that are gone. Below where either
// look ended something may be missing.
func (l *look) merge(kept []MessageRecord, aside seen) {
	switch {
	case len(kept) == l.filter.Limit:
		aside.Above = kept[len(kept)-1].Seq - 1
	case l.isOver(aside.Oldest):
		aside.Above = 0
	}
	if aside.Above > l.upto {
		l.upto, l.cut = aside.Above, l.cut || len(kept) < l.filter.Limit
	}
	l.found = append(l.found, kept...)
	slices.SortFunc(l.found, func(a, b MessageRecord) int { return cmp.Compare(b.Seq, a.Seq) })
	l.found = slices.DeleteFunc(l.found, func(m MessageRecord) bool { return m.Seq <= l.upto })
	if len(l.found) > l.filter.Limit {
		l.found = l.found[:l.filter.Limit]
		l.upto = l.found[len(l.found)-1].Seq - 1
	}
}

func (l *look) page() page.Of[MessageRecord] {
	page := page.Of[MessageRecord]{Items: l.found}
	if l.upto > 0 {
		page.Next = strconv.FormatInt(l.upto, 10)
	}
	if l.cut && len(l.found) < l.filter.Limit {
		page.LookedTo = l.oldest
	}
	return page
}
