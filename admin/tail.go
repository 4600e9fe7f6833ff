package admin

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/internal/work"
)

const (
	tailEvery = 200 * time.Millisecond
	tailMost  = 1000 // messages that are brought at once, and numbers that are looked through where there are more
)

// Tail calls fn for each message that commits after Tail began, in the order
// of their numbers within each look, until ctx ends or fn returns an error,
// which it returns. Messages that commit late are not left out: it looks for
// what the last snapshot did not see. It has at most a thousand in memory, however
// many a transaction publishes. topic "": all topics.
func (c *Client) Tail(ctx context.Context, topic string, payload bool, fn func(MessageRecord) error) error {
	t := tail{Client: c, topic: topic, payload: payload}
	if err := c.pool.QueryRow(ctx, query.Snapshot).Scan(&t.oldest, &t.seen); err != nil {
		return deed.WrapError("tail", err)
	}
	var refused error
	show := func(m MessageRecord) error {
		refused = fn(m)
		return refused
	}
	for work.Sleep(ctx, tailEvery) {
		switch err := t.look(ctx, show); {
		case refused != nil:
			return refused
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return deed.WrapError("tail", err)
		}
	}
	return nil
}

// tail is what has been shown: all that seen sees.
type tail struct {
	*Client
	topic        string
	payload      bool
	oldest, seen string // a snapshot, and its oldest transaction that was running
}

// look shows what has committed since the last look.
func (t *tail) look(ctx context.Context, fn func(MessageRecord) error) error {
	l, err := t.newest(ctx)
	if err != nil {
		return err
	}
	for {
		for _, m := range l.list {
			if err := fn(m); err != nil {
				return err
			}
		}
		if l.from >= l.upto {
			break
		}
		if l.list, err = t.window(ctx, l); err != nil {
			return err
		}
		l.from += tailMost
	}
	t.oldest, t.seen = l.oldest, l.now
	return nil
}

// tailLook is what a look has found: messages, or where there are more than that the
// numbers between which they are.
type tailLook struct {
	list        []MessageRecord
	from, upto  int64
	oldest, now string
}

// newest reads, in one snapshot, what the snapshot seen did not see.
func (t *tail) newest(ctx context.Context) (l tailLook, err error) {
	ctx, cancel := t.deadline(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, t.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, query.Snapshot).Scan(&l.oldest, &l.now); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, query.MessagesAfter, t.oldest, t.seen, sqlvalue.NullIfZero(t.topic), t.payload, tailMost+1)
		if err != nil {
			return err
		}
		if l.list, err = pgx.CollectRows(rows, scanRecord); err != nil || len(l.list) <= tailMost {
			return err
		}
		l.list = nil
		return tx.QueryRow(ctx, query.NumbersAfter, t.oldest, t.seen, sqlvalue.NullIfZero(t.topic)).Scan(&l.from, &l.upto)
	})
	return l, err
}

// window reads those of the next numbers.
func (t *tail) window(ctx context.Context, l tailLook) ([]MessageRecord, error) {
	ctx, cancel := t.deadline(ctx)
	defer cancel()
	rows, err := t.pool.Query(ctx, query.TailWindow, l.from, min(l.from+tailMost, l.upto), t.seen, l.now, sqlvalue.NullIfZero(t.topic), t.payload)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanRecord)
}
