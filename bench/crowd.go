package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
)

// crowdPeer is a stream in a database that holds many other messages of its
// own: finished, parked and scheduled ones.
type crowdPeer struct{ streamPeer }

func (crowdPeer) name() string     { return "crowded" }
func (crowdPeer) template() string { return "crowd" }

// crowd says how many messages of each kind there are.
type crowd struct{ finished, parked, dead, scheduled int }

func crowdOf(finished int) crowd {
	finished = finished / 10 * 10
	return crowd{finished: finished, parked: finished / 10, dead: max(1, finished/1000), scheduled: finished / 10}
}

// crowdBatch is how many messages a transaction of the crowd published.
const crowdBatch = 12_000

// insertCrowd writes what deed.publish_many would, of the numbers $1 to $2, with
// a note as payload. $3 is 'dead', or 'crowd': of twelve messages one stands
// behind one of $4 dead ones, one is scheduled, and ten have just a key.
const insertCrowd = `
	insert into deed.log (id, xid, slot, list_version, tenant_id, created_at, process_after, topic, key, payload)
	select m.id, pg_current_xact_id(), deed.slot(t.slot_base, m.key, m.id), coalesce(t.list_version, s.list_version),
	  '00000000-0000-0000-0000-000000000000', clock_timestamp(), m.process_after, 'bench', m.key,
	  convert_to(format('{"n":%s,"pad":"%s"}', m.n, $5::text), 'UTF8')
	from (
	  select n, nextval('deed.log_seq') as id,
	    case
	      when $3::text = 'dead' then 'dead-' || n
	      when n % 12 = 10 then 'dead-' || n % $4::int
	      else 'crowd-' || n
	    end as key,
	    case when $3::text <> 'dead' and n % 12 = 11 then now() + interval '10 years' end as process_after
	  from generate_series($1::int, $2::int) n
	) m
	cross join deed.settings s
	join deed.topics t on t.topic = 'bench'`

// fillTemplate publishes by SQL, for it is faster; what becomes of the messages
// is a client's work. First those that end dead, then the others, of which some
// find their key's first one dead.
func (p crowdPeer) fillTemplate(ctx context.Context, pool *pgxpool.Pool, o options) error {
	c := crowdOf(o.crowd)
	if err := fillCrowd(ctx, pool, "dead", c.dead, c); err != nil {
		return err
	}
	if err := p.drainCrowd(ctx, pool); err != nil {
		return err
	}
	if err := fillCrowd(ctx, pool, "crowd", c.finished/10*12, c); err != nil {
		return err
	}
	if err := p.drainCrowd(ctx, pool); err != nil {
		return err
	}
	var got crowd
	err := pool.QueryRow(ctx, `
		select (select sum(g.messages - g.aside) from deed.progress g), count(*) filter (where p.parked),
		  count(*) filter (where p.dead_at is not null), count(*) filter (where p.process_after > now())
		from deed.pending p`).Scan(&got.finished, &got.parked, &got.dead, &got.scheduled)
	if err == nil && got != c {
		err = fmt.Errorf("the crowd is %+v, and was to be %+v", got, c)
	}
	return err
}

func fillCrowd(ctx context.Context, pool *pgxpool.Pool, kind string, n int, c crowd) error {
	for from := 0; from < n; from += crowdBatch {
		upto := min(from+crowdBatch, n) - 1
		if _, err := pool.Exec(ctx, insertCrowd, from, upto, kind, c.dead, pad); err != nil {
			return fmt.Errorf("publish %s messages: %w", kind, err)
		}
	}
	_, err := pool.Exec(ctx, `analyze deed.log`)
	return err
}

// crowdSink takes everything but what is to end dead.
type crowdSink struct{}

func (crowdSink) BatchSize() int { return deedBatch }

func (crowdSink) Deliver(_ context.Context, msgs []deed.Message) []error {
	results := make([]error, len(msgs))
	for i := range msgs {
		if strings.HasPrefix(msgs[i].Key, "dead-") {
			results[i] = deed.Permanent(errors.New("to be dead"))
		}
	}
	return results
}

// drainCrowd brings what has been published to where it stays.
func (crowdPeer) drainCrowd(ctx context.Context, pool *pgxpool.Pool) error {
	w, err := startClient(ctx, pool, deed.Options{Subscriptions: []deed.Subscription{
		{Topic: "bench", Name: "handler", Sink: crowdSink{}, BatchSize: deedBatch},
	}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 6*drainLimit)
	defer cancel()
	for drained := false; !drained && err == nil; {
		select {
		case <-time.After(20 * time.Millisecond):
			drained, err = w.drained(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return errors.Join(err, w.stop())
}

// drainCrowded measures a drain from the worker's start, as elsewhere, and from
// the first message on: a worker that starts among many blocked keys learns of
// them first, which is no page's cost.
func drainCrowded(ctx context.Context, e *env) error {
	n := e.opts.messages
	if _, err := e.fill(ctx, n); err != nil {
		return err
	}
	if err := e.settle(ctx); err != nil {
		return err
	}
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	h := newHands(n)
	took, err := e.drainInto(ctx, pool, h)
	if err != nil {
		return err
	}
	first := h.first()
	e.record("after the first", "messages/s", float64(n)/(took-first).Seconds())
	e.record("drained", "messages/s", float64(n)/took.Seconds())
	e.record("until the first", "ms", float64(first.Microseconds())/1e3)
	if _, ok := e.peer.(crowdPeer); !ok {
		return e.expectStored(ctx, 0, n)
	}
	c := crowdOf(e.opts.crowd)
	return e.expectStored(ctx, c.parked+c.dead+c.scheduled, c.finished+n)
}
