package stream

import (
	"context"
	"time"
)

// page is one read of the log.
type page struct {
	entries []*entry
	end     bool  // of the window
	err     error // then there are no entries
}

// limit is how many messages a page has at the most: fewer where payloads are
// large, as a page and the one after it are in memory at once.
func (st *stream) limit() int { return st.Fit(st.page) }

// dealPages deals out a window whose rows came with it, in pages like those that
// readPages reads. One without entries for the lane is a page, too: at its end the
// lane has passed the window.
func (st *stream) dealPages(ctx context.Context, entries []*entry, pages chan<- page) {
	defer close(pages)
	limit := st.limit()
	for end := false; !end; {
		n := min(limit, len(entries))
		end = n == len(entries)
		select {
		case pages <- page{entries: entries[:n], end: end}:
		case <-ctx.Done():
			return
		}
		entries = entries[n:]
	}
}

// readPages reads what is in the slots from p to the end of its window, until ctx
// ends. It runs ahead of the lane that delivers what it reads, and so has a
// position of its own: what it has sent may be thrown away unread, and is read again
// by the next.
func (st *stream) readPages(ctx context.Context, in slots, p position, late lateRows, pages chan<- page) {
	defer close(pages)
	for {
		entries, end, err := st.readPage(ctx, in, p, late)
		if err != nil && ctx.Err() != nil { // nobody wants it any more
			return
		}
		select { // waits here until the page before has been taken up
		case pages <- page{entries, end, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || end {
			return
		}
		last := entries[len(entries)-1]
		p = p.at(last.place, last.Seq)
	}
}

// readPage reads what follows p. The statement names both windows by number and
// transaction id, and fails if one of them is not what it was (the window
// protocol's rule 11).
func (st *stream) readPage(ctx context.Context, in slots, p position, late lateRows) (entries []*entry, end bool, err error) {
	ctx, cancel := st.Bounded(ctx)
	defer cancel()
	limit := st.limit()
	started := time.Now()
	rows, err := st.DB.Query(ctx, query.Page, st.ID, in.from, in.upto,
		p.passed.n, p.passed.h, p.reading.n, p.reading.h, p.slot, p.id, limit, late.low, late.xids)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	block := make([]entry, 0, min(limit, 1000)) // one allocation for a page
	size := 0
	for rows.Next() {
		block = append(block, entry{})
		e := &block[len(block)-1]
		if err := e.scan(rows); err != nil {
			return nil, false, err
		}
		e.Topic = st.Topic
		size += len(e.Payload)
	}
	if err := rows.Err(); err != nil {
		return nil, false, err
	}
	st.Counters.Claim.Observe(time.Since(started)) // a page is a stream's claim
	st.Weigh(size, len(block))
	entries = make([]*entry, len(block))
	for i := range block {
		entries[i] = &block[i]
	}
	return entries, len(block) < limit, nil // so deed.page says that the window ends
}
