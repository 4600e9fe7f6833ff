package deed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Tx is the transaction of [InTx], or a savepoint in it: a pgx.Tx that also takes
// messages. Like that it is for one goroutine. Savepoints are begun and ended by its
// methods: of one that SQL rolls back, InTx counts the messages among its results. Once InTx has returned all of it
// answers [pgx.ErrTxClosed]; large objects must not be kept that long.
type Tx struct {
	tx   pgx.Tx
	of   *outgoing
	mark int // of a savepoint: how many had been published when it began
	kind txKind
}

type txKind int

const (
	whole txKind = iota
	savepoint
	over // a savepoint that has ended
)

// outgoing is what a transaction publishes.
type outgoing struct {
	owed      []prepared  // not sent yet
	bytes     int         // of them
	published []Published // sent
	failed    error       // what has lost some of them: the transaction is not to be committed
	ended     bool        // InTx has returned

	// Something was published otherwise, by [Publish].
	otherwise bool
}

// owedMost bounds the bytes of messages that wait to be sent with the commit.
const owedMost = 16 << 20

// owedEach is what a message takes besides its texts.
const owedEach = 200

// Publish adds msgs to what the transaction publishes, in order, as [Publish] does;
// what needs no database is checked here, and a message that is refused ([Invalid])
// is not added. They are sent with the commit, or before the next statement, so
// that they are the tenant's that is set now and fall with the savepoint that is
// open now; what only the database can refuse, that statement or InTx returns, and all
// that follows in the same savepoint. What is done through Conn they do not wait for.
// Payloads are copied. Where much waits already it is sent at once, unless rows are
// being read.
func (tx *Tx) Publish(ctx context.Context, msgs ...Message) error {
	if tx.of.ended || tx.kind == over {
		return WrapError("publish", pgx.ErrTxClosed)
	}
	if tx.of.failed != nil {
		return WrapError("publish", tx.of.failed)
	}
	list, err := prepare(ctx, msgs)
	if err != nil {
		return err
	}
	for i := range list {
		list[i].payload = bytes.Clone(list[i].payload)
		tx.of.bytes += list[i].bytes() + owedEach
	}
	tx.of.owed = append(tx.of.owed, list...)
	if tx.of.bytes > owedMost {
		err = tx.of.send(ctx, tx.tx)
		if tx.of.failed == nil { // it is owed still
			err = nil
		}
	}
	return err
}

var errEndedBefore = errors.New("the function has ended its transaction by a statement of its own: what it did before stands as that statement left it")

var errEndsInTx = errors.New("deed: in tx: the transaction ends with its function: return nil to commit, an error to roll back")

// rollbackWithin bounds the rollback of a transaction whose context may have ended.
const rollbackWithin = 5 * time.Second

// InTx runs fn in a transaction and commits it, together with what fn has published
// through tx: messages that no statement follows are sent in the round trip of the
// commit, so that publishing takes none of its own. It returns one result for each
// message, in the order in which they were published; the ids are known once it has
// returned.
//
// If fn returns an error or panics, or the database refuses a message, or the commit
// fails, nothing is stored, neither messages nor what else was done. The error is then
// fn's own; or of a message, with the codes of [Publish]; or PostgreSQL's: as with any
// commit, a connection that is lost during it leaves open whether it happened, and
// 40001 asks to run the transaction again. A transaction that has failed, though fn
// has returned nil, is [pgx.ErrTxCommitRollback], or the server's 25P02 if there were
// messages. That fn has ended it by a statement of its own is an error, too, and what
// it published before stands or falls with the rest; one that begins another at once
// (ROLLBACK AND CHAIN) is not seen, and that other is committed in its place.
func InTx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, fn func(tx *Tx) error) ([]Published, error) {
	of, err := inTx(ctx, pool, opts, fn)
	return of.published, err
}

// inTx is InTx; of what it returns with an error nothing was published.
func inTx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, fn func(tx *Tx) error) (of outgoing, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return outgoing{}, WrapError("in tx", err)
	}
	defer conn.Release()
	begun, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return outgoing{}, WrapError("in tx", err)
	}
	defer func() { // after a panic, too
		if c := conn.Conn(); !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
			defer cancel()
			_ = begun.Rollback(ctx) // a connection that cannot is closed on release
		}
	}()
	tx := &Tx{tx: begun, of: &outgoing{}}
	defer func() { tx.of.ended = true }()
	if err := fn(tx); err != nil {
		return outgoing{}, err
	}
	if tx.of.failed != nil {
		return outgoing{}, WrapError("in tx", tx.of.failed)
	}
	if c := conn.Conn().PgConn(); !c.IsClosed() && c.TxStatus() == 'I' {
		return outgoing{}, WrapError("in tx", errEndedBefore)
	}
	if err := tx.of.commit(ctx, conn.Conn(), cmp.Or(opts.CommitQuery, "commit")); err != nil {
		return outgoing{}, WrapError("in tx", err)
	}
	return *tx.of, nil
}

// queue adds what is owed to a batch; once that is through it is published.
func (o *outgoing) queue(batch *pgx.Batch) {
	if len(o.owed) == 0 {
		return
	}
	st := statementOf(o.owed).Raising()
	batch.Queue(st.SQL, st.Args...).Query(func(rows pgx.Rows) error {
		published, err := st.Published(rows)
		o.published = append(o.published, published...)
		return err
	})
}

// send sends what is owed. Where an error is certain to have come before anything left,
// as where the context had ended or rows are being read, it is owed as before.
func (o *outgoing) send(ctx context.Context, tx pgx.Tx) error {
	if o.failed != nil {
		return o.failed
	}
	if len(o.owed) == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	o.queue(batch)
	err := tx.SendBatch(ctx, batch).Close()
	if err != nil && pgconn.SafeToRetry(err) {
		return err
	}
	o.owed, o.bytes, o.failed = nil, 0, err
	return err
}

// commit sends what is owed, and the commit behind it: the server passes over that
// if a message is refused.
func (o *outgoing) commit(ctx context.Context, conn *pgx.Conn, commit string) error {
	batch := &pgx.Batch{}
	o.queue(batch)
	var ended string
	batch.Queue(commit).Exec(func(tag pgconn.CommandTag) error {
		ended = tag.String()
		return nil
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if ended == "ROLLBACK" { // of a transaction that has failed a commit is that
		return pgx.ErrTxCommitRollback
	}
	return nil
}

// ready is what the next statement goes through: what is owed has been sent.
func (tx *Tx) ready(ctx context.Context) pgx.Tx {
	if tx.of.ended || tx.kind == over {
		return failedTx{pgx.ErrTxClosed}
	}
	if err := tx.of.send(ctx, tx.tx); err != nil {
		return failedTx{err}
	}
	return tx.tx
}

// Begin begins a savepoint, which is a *Tx.
func (tx *Tx) Begin(ctx context.Context) (pgx.Tx, error) {
	begun, err := tx.ready(ctx).Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &Tx{tx: begun, of: tx.of, mark: len(tx.of.published), kind: savepoint}, nil
}

// Commit releases a savepoint. Of the transaction it is refused: InTx commits.
func (tx *Tx) Commit(ctx context.Context) error {
	switch {
	case tx.of.ended || tx.kind == over:
		return pgx.ErrTxClosed
	case tx.kind == whole:
		return errEndsInTx
	}
	tx.kind = over
	return tx.tx.Commit(ctx) // what is owed is its parent's now
}

// Rollback rolls a savepoint back, with what was published since it began. Of the
// transaction it is refused: a function that returns an error has InTx roll back.
func (tx *Tx) Rollback(ctx context.Context) error {
	switch {
	case tx.of.ended || tx.kind == over:
		return pgx.ErrTxClosed
	case tx.kind == whole:
		return errEndsInTx
	}
	tx.kind = over
	o := tx.of
	if err := tx.tx.Rollback(ctx); err != nil {
		// Whether what was done since then stands is not known, and pgx tries no second time.
		o.failed = cmp.Or(o.failed, err)
		return err
	}
	o.owed, o.bytes, o.failed = nil, 0, nil
	o.published = o.published[:min(tx.mark, len(o.published))]
	return nil
}

// CopyFrom is pgx.Tx's.
func (tx *Tx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	return tx.ready(ctx).CopyFrom(ctx, table, columns, rows)
}

// SendBatch is pgx.Tx's.
func (tx *Tx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return tx.ready(ctx).SendBatch(ctx, b)
}

// LargeObjects is pgx.Tx's.
func (tx *Tx) LargeObjects() pgx.LargeObjects {
	if tx.of.ended {
		return pgx.LargeObjects{}
	}
	return tx.tx.LargeObjects()
}

// Prepare is pgx.Tx's.
func (tx *Tx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return tx.ready(ctx).Prepare(ctx, name, sql)
}

// Exec is pgx.Tx's.
func (tx *Tx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tx.ready(ctx).Exec(ctx, sql, args...)
}

// Query is pgx.Tx's.
func (tx *Tx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return tx.ready(ctx).Query(ctx, sql, args...)
}

// QueryRow is pgx.Tx's.
func (tx *Tx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return tx.ready(ctx).QueryRow(ctx, sql, args...)
}

// Conn is pgx.Tx's; nil once InTx has returned.
func (tx *Tx) Conn() *pgx.Conn {
	if tx.of.ended {
		return nil
	}
	return tx.tx.Conn()
}
