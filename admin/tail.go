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
	tailMost  = 1000 // messages that are brought at once

	// How long it may take to find out between which numbers a transaction's messages
	// are: all of them are looked at.
	tailDeadline = 5 * time.Minute
)

// Tail calls fn for each message that commits after Tail began, in the order
// of their numbers within each look, until ctx ends or fn returns an error,
// which it returns; once ctx has ended fn is not called. Messages that commit late are not left out: it looks for
// what the last snapshot did not see. It has at most a thousand in memory, and the
// places of a hundred thousand, however many a transaction publishes. topic "": all topics.
func (c *Client) Tail(ctx context.Context, topic string, payload bool, fn func(MessageRecord) error) error {
	t := tail{Client: c, topic: topic, payload: payload}
	if err := c.pool.QueryRow(ctx, query.Snapshot).Scan(&t.oldest, &t.seen); ctx.Err() != nil {
		return nil
	} else if err != nil {
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
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := fn(m); err != nil {
				return err
			}
		}
		for len(l.ids) == 0 && l.from < l.upto {
			if err := t.window(ctx, &l); err != nil {
				return err
			}
		}
		if len(l.ids) == 0 {
			break
		}
		if err := t.fetch(ctx, &l); err != nil {
			return err
		}
	}
	t.oldest, t.seen = l.oldest, l.now
	return nil
}

// tailLook is what a look has found: messages, or where there are many the places of
// the next ones, and the numbers between which the rest is.
type tailLook struct {
	list        []MessageRecord
	slots       []int32
	ids         []int64
	from, upto  int64
	oldest, now string
}

// newest reads, in one snapshot, what the snapshot seen did not see.
func (t *tail) newest(ctx context.Context) (l tailLook, err error) {
	whole, end := context.WithTimeout(ctx, tailDeadline)
	defer end()
	ctx, cancel := t.deadline(ctx)
	defer cancel()
	err = pgx.BeginTxFunc(whole, t.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
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
		return tx.QueryRow(whole, query.NumbersAfter, t.oldest, t.seen, sqlvalue.NullIfZero(t.topic)).Scan(&l.from, &l.upto)
	})
	return l, err
}

// window finds where those of the next numbers are.
func (t *tail) window(ctx context.Context, l *tailLook) error {
	ctx, cancel := t.deadline(ctx)
	defer cancel()
	return t.pool.QueryRow(ctx, query.TailWindow, l.from, l.upto, t.seen, l.now, sqlvalue.NullIfZero(t.topic)).Scan(&l.from, &l.slots, &l.ids)
}

// fetch reads the next of those places.
func (t *tail) fetch(ctx context.Context, l *tailLook) error {
	ctx, cancel := t.deadline(ctx)
	defer cancel()
	n := min(tailMost, len(l.ids))
	rows, err := t.pool.Query(ctx, query.MessagesAt, l.slots[:n], l.ids[:n], t.payload)
	if err != nil {
		return err
	}
	l.slots, l.ids = l.slots[n:], l.ids[n:]
	l.list, err = pgx.CollectRows(rows, scanRecord)
	return err
}
