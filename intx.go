package deed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A Tx is the transaction of [InTx]: a pgx.Tx that also takes messages, and that
// InTx ends. Like that it is for one goroutine.
type Tx struct {
	pgx.Tx
	owed  []prepared
	ended bool
}

// Publish adds msgs to what is stored as the transaction commits, in order, and
// checks what needs no database: what it refuses ([Invalid]) is not added. It does
// not talk to the database: what only that can refuse, InTx returns. They belong to
// the transaction as a whole: a savepoint that is rolled back takes none along.
// Payloads are copied. Once InTx has returned it is [pgx.ErrTxClosed].
func (tx *Tx) Publish(ctx context.Context, msgs ...Message) error {
	if tx.ended {
		return WrapError("publish", pgx.ErrTxClosed)
	}
	list, err := prepare(ctx, msgs)
	for i := range list {
		list[i].payload = bytes.Clone(list[i].payload)
	}
	tx.owed = append(tx.owed, list...)
	return err
}

var errEndedBefore = errors.New("the function has ended its transaction by a statement of its own: nothing is published, and what it did before stands as that statement left it")

var errEndsInTx = errors.New("deed: in tx: the transaction ends with its function: return nil to commit, an error to roll back")

// Commit is refused: InTx commits.
func (tx *Tx) Commit(context.Context) error { return errEndsInTx }

// Rollback is refused: a function that returns an error has InTx roll back.
func (tx *Tx) Rollback(context.Context) error { return errEndsInTx }

// rollbackWithin bounds the rollback of a transaction whose context may have ended.
const rollbackWithin = 5 * time.Second

// InTx runs fn in a transaction and commits it, together with what fn has published
// through tx: the messages are sent in the round trip of the commit, so that
// publishing takes none of its own. It returns one result for each message, in the
// order in which they were published; the ids are known once it has returned.
//
// If fn returns an error or panics, or a message is refused, or the commit fails,
// nothing is stored, neither messages nor what else was done. The error is then fn's
// own; or of a message, with the codes of [Publish]; or PostgreSQL's: as with any commit, a
// connection that is lost during it leaves open whether it happened, and 40001 asks
// to run the transaction again. A transaction that has failed, though fn has
// returned nil, is [pgx.ErrTxCommitRollback], or the server's 25P02 if there were
// messages. Where fn has ended it by a statement of its own, nothing is published, and
// that is an error, too; one that begins another at once (ROLLBACK AND CHAIN) is not
// seen, and that other is committed in its place.
func InTx(ctx context.Context, pool *pgxpool.Pool, opts pgx.TxOptions, fn func(tx *Tx) error) ([]Published, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, WrapError("in tx", err)
	}
	defer conn.Release()
	begun, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return nil, WrapError("in tx", err)
	}
	defer func() { // after a panic, too
		if c := conn.Conn(); !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
			defer cancel()
			_ = begun.Rollback(ctx) // a connection that cannot is closed on release
		}
	}()
	tx := &Tx{Tx: begun}
	defer func() { tx.Tx, tx.ended = endedTx{}, true }()
	if err := fn(tx); err != nil {
		return nil, err
	}
	if c := conn.Conn().PgConn(); !c.IsClosed() && c.TxStatus() == 'I' {
		return nil, WrapError("in tx", errEndedBefore)
	}
	return tx.commit(ctx, conn.Conn(), cmp.Or(opts.CommitQuery, "commit"))
}

// commit sends what is owed, and the commit behind it: the server passes over that
// if a message is refused.
func (tx *Tx) commit(ctx context.Context, conn *pgx.Conn, commit string) (published []Published, err error) {
	batch := &pgx.Batch{}
	if len(tx.owed) > 0 {
		st := statementOf(tx.owed)
		raising := strings.Replace(st.SQL, "p_raise => false", "p_raise => true", 1)
		batch.Queue(raising, st.Args...).Query(func(rows pgx.Rows) (err error) {
			published, err = st.Published(rows)
			return err
		})
	}
	var ended string
	batch.Queue(commit).Exec(func(tag pgconn.CommandTag) error {
		ended = tag.String()
		return nil
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, WrapError("in tx", err)
	}
	if ended != "COMMIT" { // of a transaction that has failed a commit is a rollback
		return nil, WrapError("in tx", pgx.ErrTxCommitRollback)
	}
	return published, nil
}
