package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/tenant"
)

// DB is what Publish needs: a pool or a connection.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// PublishOptions tune [Publish]. The zero value works.
type PublishOptions struct {
	Batch    int              // messages a transaction, or fewer of large ones; default 1000
	Rejected func(*LineError) // if not nil, is told of each line that is left out
	Progress func(Tally)      // if not nil, is told after each transaction how it stands
}

// Tally is how the lines of a file fared.
type Tally struct {
	Published int `json:"published"`
	Repeated  int `json:"repeated"` // published before under the same idempotency key
	Rejected  int `json:"rejected"` // left out
}

// Publish publishes what r reads, many messages a transaction, each of which acts
// for the options' tenant if there is one. A line that is no message, or that
// the database refuses, is left out, and the others are published all the same.
// After an error the tally says what has been published already; with an
// IDField all of the file may be published again, and only the rest will be.
func Publish(ctx context.Context, db DB, r *Reader, opts PublishOptions) (Tally, error) {
	p := &publisher{db: db, reader: r, opts: opts}
	p.opts.Batch = cmp.Or(opts.Batch, 1000)
	if p.opts.Batch < 1 {
		return p.tally, &deed.Error{Op: "import " + r.name, Code: deed.Invalid, Err: fmt.Errorf("a batch of %d messages is below 1", opts.Batch)}
	}
	err := p.run(ctx)
	return p.tally, err
}

type publisher struct {
	db     DB
	reader *Reader
	opts   PublishOptions
	tally  Tally
}

// numbered is a message and where it begins.
type numbered struct {
	deed.Message
	line int
}

func (p *publisher) run(ctx context.Context) error {
	var batch []numbered
	size := 0
	for {
		m, line, err := p.reader.Next()
		if bad, ok := errors.AsType[*LineError](err); ok {
			p.reject(bad)
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(p.publish(ctx, batch), err)
		}
		if err == nil {
			batch = append(batch, numbered{m, line})
			size += len(m.Payload)
		}
		if len(batch) == p.opts.Batch || size > mostBytes || err != nil {
			if err := p.publish(ctx, batch); err != nil {
				return err
			}
			batch, size = batch[:0], 0
		}
		if err != nil {
			return nil
		}
	}
}

func (p *publisher) reject(bad *LineError) {
	p.tally.Rejected++
	if p.opts.Rejected != nil {
		p.opts.Rejected(bad)
	}
}

// publish stores a batch. If the database refuses some of it, the messages go
// one by one, so that only the bad ones are left out.
func (p *publisher) publish(ctx context.Context, batch []numbered) error {
	if len(batch) == 0 {
		return nil
	}
	published, err := p.store(ctx, batch)
	if deed.CodeOf(err) == deed.Invalid {
		if len(batch) == 1 {
			p.reject(&LineError{batch[0].line, err})
			return nil
		}
		for i := range batch {
			if err := p.publish(ctx, batch[i:i+1]); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("lines %d to %d: %w", batch[0].line, batch[len(batch)-1].line, err)
	}
	for _, r := range published {
		if r.Repeated {
			p.tally.Repeated++
		} else {
			p.tally.Published++
		}
	}
	if p.opts.Progress != nil {
		p.opts.Progress(p.tally)
	}
	return nil
}

// store publishes a batch in a transaction.
func (p *publisher) store(ctx context.Context, batch []numbered) (published []deed.Published, err error) {
	msgs := make([]deed.Message, len(batch))
	for i := range batch {
		msgs[i] = batch[i].Message
	}
	err = pgx.BeginFunc(ctx, p.db, func(tx pgx.Tx) error {
		if owner := p.reader.opts.Tenant; owner != nil {
			if err := tenant.Set(ctx, tx, *owner); err != nil {
				return err
			}
		}
		for rest := msgs; len(rest) > 0; {
			n := fitting(rest)
			more, err := deed.Publish(ctx, tx, rest[:n]...)
			if err != nil {
				return err
			}
			published, rest = append(published, more...), rest[n:]
		}
		return nil
	})
	return published, err
}

// fitting is how many of msgs one statement takes, at least 1: PostgreSQL has a
// limit.
func fitting(msgs []deed.Message) int {
	const most = 16 << 20
	size := 0
	for i, m := range msgs {
		if size += len(m.Payload); size > most {
			return max(i, 1)
		}
	}
	return len(msgs)
}
