package seal

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlfile"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

// Options configures a [Sealer]. The zero value works.
type Options struct {
	// Every is how often it seals, half as much more or less. Default 1m.
	Every time.Duration
	// Rows is how many a seal is for at the most, up to 10,000. Default 1,000.
	Rows int
	// Patience is how long it waits at once for who is writing to the audit log. Default 5s.
	Patience time.Duration
	// Ready says when it may seal; while it returns an error nothing is sealed, as in a
	// copy of the installation. Default: always.
	Ready func(context.Context) error
	// Logger receives warnings. Default: discard.
	Logger *slog.Logger
}

// Sealer seals the audit log. Any number may run; one that finds a seal made goes on behind it.
type Sealer struct {
	pool *pgxpool.Pool
	key  ed25519.PrivateKey
	name string // of the key
	opts Options
}

const statement = 30 * time.Second

// New makes one, and looks whether its statements fit the installed schema. pool's login
// holds deed_worker or deed_admin. Errors: [deed.Invalid].
func New(ctx context.Context, pool *pgxpool.Pool, key ed25519.PrivateKey, opts Options) (*Sealer, error) {
	const op = "new sealer"
	opts.Every = cmp.Or(opts.Every, time.Minute)
	opts.Rows = cmp.Or(opts.Rows, 1000)
	opts.Patience = cmp.Or(opts.Patience, 5*time.Second)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Ready == nil {
		opts.Ready = func(context.Context) error { return nil }
	}
	if len(key) != ed25519.PrivateKeySize || opts.Rows < 1 || opts.Rows > 10000 || opts.Every < time.Second || opts.Every > 24*time.Hour || opts.Patience < 0 || opts.Patience > time.Minute {
		return nil, &deed.Error{Op: op, Code: deed.Invalid, Err: fmt.Errorf(
			"there is no key, or option Every %s is not from 1s to 24h, Rows %d not from 1 to 10000, or Patience %s not up to 1m", opts.Every, opts.Rows, opts.Patience)}
	}
	conn, err := pool.Acquire(ctx)
	if err == nil {
		defer conn.Release()
		err = sqlfile.Check(ctx, conn.Conn(), query)
	}
	if err != nil {
		return nil, deed.WrapError(op, err)
	}
	return &Sealer{pool: pool, key: key, name: KeyName(key.Public().(ed25519.PublicKey)), opts: opts}, nil
}

// Run seals until ctx ends. It blocks.
func (s *Sealer) Run(ctx context.Context) {
	for pause := rand.N(s.opts.Every / 10); work.Sleep(ctx, pause); pause = s.opts.Every/2 + rand.N(s.opts.Every) {
		if s.opts.Ready(ctx) != nil {
			continue
		}
		if _, err := s.Seal(ctx); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("the audit log was not sealed; will try again", "error", sqlstate.WithHint(err))
		}
	}
}

// Seal seals what can be, and returns how many rows that are. What comes behind a row that
// an open transaction may still write is left for the next time.
func (s *Sealer) Seal(ctx context.Context) (rows int, err error) {
	// One connection has read the point and seals up to it: a server that takes over may give
	// numbers again that the one before it had given.
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, deed.WrapError("seal", err)
	}
	defer conn.Release()
	upto, ok, err := s.point(ctx, conn)
	for n := s.opts.Rows; err == nil && ok && n == s.opts.Rows; rows += n {
		n, err = s.sealOnce(ctx, conn, upto)
	}
	return rows, deed.WrapError("seal", err)
}

// point is up to where the log may be sealed; false: somebody is writing who was before.
func (s *Sealer) point(ctx context.Context, conn *pgxpool.Conn) (upto int64, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statement+s.opts.Patience)
	defer cancel()
	var writers []string
	if err := conn.QueryRow(ctx, query.Point).Scan(&upto, &writers); err != nil {
		return 0, false, err
	}
	for begun, n := time.Now(), 1; ; n++ {
		if err := conn.QueryRow(ctx, query.Passed, writers).Scan(&ok); err != nil || ok {
			return upto, ok, err
		}
		if time.Since(begun) >= s.opts.Patience || !work.Sleep(ctx, work.Backoff(n, 2*time.Millisecond, 100*time.Millisecond)) {
			s.opts.Logger.Debug("the audit log is not sealed: a transaction that writes to it is open")
			return 0, false, nil
		}
	}
}

// sealOnce seals up to Options.Rows, in a transaction; 0: there is nothing to seal, an erasure is
// at it, or another has sealed it.
func (s *Sealer) sealOnce(ctx context.Context, conn *pgxpool.Conn, upto int64) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		next := Seal{K: 1, Previous: make([]byte, 32), Key: s.name}
		var k int64
		err := tx.QueryRow(ctx, query.Last).Scan(&k, &next.From, &next.Previous)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		next.K = k + 1
		rows, err := tx.Query(ctx, query.Unsealed, upto, s.opts.Rows)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, scanRow)
		if err != nil || len(list) == 0 {
			return err
		}
		if list[0].N <= next.From { // another seal was put in between
			return nil
		}
		var installation string
		if err := tx.QueryRow(ctx, query.Installation).Scan(&installation, &next.At); err != nil {
			return err
		}
		put, err := s.put(ctx, tx, next, list, installation)
		if put {
			n = len(list)
		}
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "55P03" {
		return 0, nil
	}
	return n, err
}

// put makes the seal over the rows, and stores it.
func (s *Sealer) put(ctx context.Context, tx pgx.Tx, next Seal, list []Row, installation string) (put bool, err error) {
	var blinds []int64
	var parts []string
	var salts, hashes [][]byte
	for _, r := range list {
		if err := r.blind(); err != nil {
			return false, err
		}
		hash, err := r.hash()
		if err != nil {
			return false, err
		}
		next.Leaves = append(next.Leaves, leaf(r.N, hash)...)
		for part, b := range r.Blinds {
			blinds, parts, salts, hashes = append(blinds, r.N), append(parts, part), append(salts, b.Salt), append(hashes, b.Hash)
		}
	}
	next.Rows, next.Upto, next.At = len(list), list[len(list)-1].N, next.At.UTC().Truncate(time.Microsecond)
	hash := next.hash(installation)
	next.Hash, next.Signature = hash[:], ed25519.Sign(s.key, hash[:])
	err = tx.QueryRow(ctx, query.Put, next.K, next.Upto, next.Leaves, next.Previous, next.Hash, next.Key, next.Signature, next.At, blinds, parts, salts, hashes).Scan(&put)
	return put, err
}

func scanRow(row pgx.CollectableRow) (r Row, err error) {
	var details *string
	err = row.Scan(&r.N, &r.At, &r.Tenant, &r.Run, &r.Actor, &r.Login, &r.Action, &r.SubjectType, &r.SubjectID, &r.From, &r.To, &r.Reason, &r.Affected, &details)
	if details != nil {
		r.Details = []byte(*details)
	}
	return r, err
}
