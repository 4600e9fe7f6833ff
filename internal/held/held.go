// Package held keeps what sends from sending on another cluster than the one
// that it is meant for: a restored dump, or a copy of the volume.
package held

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/work"
)

// What a process does on another cluster. One that says neither holds only in
// another environment, if it names one.
const (
	Hold     = "hold"
	Continue = "continue"
)

// every is how often a process looks whether it is held, or still is.
const every = time.Second

// ErrHeld is what a process that is held says of itself.
var ErrHeld = errors.New("held, nothing is claimed or sent; if nobody else sends what is owed here: deed adopt --yes --reason …")

// Gate says what holds a process, and whether it does.
type Gate struct {
	Pool         *pgxpool.Pool
	What         string // is held, for the log
	OnNewCluster string
	Environment  string
	Logger       *slog.Logger
	Deadline     time.Duration // of each statement
	Passing      func(error) bool

	why atomic.Pointer[string] // nil: it is not held
}

// Held says why the process waits; empty: it does not.
func (g *Gate) Held() string {
	if why := g.why.Load(); why != nil {
		return *why
	}
	return ""
}

// Wait returns when nothing holds the process, or ctx has ended, or with an
// error that no waiting cures. told hears why it waits, and keep is called once
// a minute while it is held.
func (g *Gate) Wait(ctx context.Context, told func(error), keep func(context.Context)) error {
	defer g.why.Store(nil)
	kept := time.Time{}
	for failures := 0; ctx.Err() == nil; {
		why, err := g.ask(ctx, g.Pool, `select coalesce(deed.start_here(nullif($1::text, ''), nullif($2::text, '')), '')`, g.OnNewCluster, g.Environment)
		pause := every
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil && !g.Passing(err):
			return err
		case err != nil:
			failures++
			told(fmt.Errorf("ask whether this is a new cluster: %w", err))
			pause = work.Backoff(failures, 100*time.Millisecond, 5*time.Second)
			g.Logger.Warn("asking whether this is a new cluster failed; will try again", "error", err, "failures", failures)
		case why == "":
			if g.Held() != "" {
				g.Logger.Info("held no longer", "what", g.What)
				told(errors.New("the workers have not started"))
			}
			return nil
		default:
			failures = 0
			if why != g.Held() {
				g.Logger.Warn(ErrHeld.Error(), "what", g.What, "why", why)
				g.why.Store(&why)
				told(fmt.Errorf("%w: %s", ErrHeld, why))
			}
			if keep != nil && time.Since(kept) > time.Minute {
				keep(ctx)
				kept = time.Now()
			}
		}
		work.Sleep(ctx, pause)
	}
	return nil
}

// Watch calls end with a reason when the cluster comes to be another one, as
// at a cut-over while the process runs, and returns then or when ctx ends. It
// does not ask for the environment: naming one holds nobody that runs.
func (g *Gate) Watch(ctx context.Context, pool *pgxpool.Pool, end func(error)) {
	if g.OnNewCluster != Hold {
		return
	}
	for work.Sleep(ctx, every) {
		why, err := g.ask(ctx, pool, `select coalesce(deed.held(true, null), '')`)
		if err == nil && why != "" {
			g.Logger.Error("this is another cluster than when it began; it ends, and will be held when it starts again", "what", g.What, "why", why)
			end(fmt.Errorf("%w: %s", ErrHeld, why))
			return
		}
	}
}

func (g *Gate) ask(ctx context.Context, pool *pgxpool.Pool, query string, args ...any) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.Deadline)
	defer cancel()
	err = pool.QueryRow(ctx, query, args...).Scan(&why)
	return why, err
}
