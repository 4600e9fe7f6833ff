package campaign

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
)

const (
	// retainEvery is how often a worker looks for runs whose retention is over.
	retainEvery = time.Minute
	// purgedAtOnce is how many deliveries one statement removes.
	purgedAtOnce = 1000
	// sealing is the deadline of a seal, whose cost grows with the run.
	sealing = 10 * time.Minute
)

// Sealed is what is kept of a run whose deliveries are removed: what [Summarise] and [Verify] said
// of it at that moment. No address is in it, nor anything else that an erasure would take away.
type Sealed struct {
	Heard   Heard       `json:"heard"`
	Skipped []Reason    `json:"skipped"` // the most frequent ones
	Failed  []Failure   `json:"failed"`
	Results []VariantOf `json:"variant_results,omitempty"`
	// Found is how many findings of each kind there were; none: the run was launched.
	Found map[string]int64 `json:"found"`
	// Counts are of members, by their status, and MembersSHA256 is of the lines that a signed proof
	// ([Sign]) has of them: of a file that was written before it is known that it is of this run.
	Counts        map[string]int64 `json:"counts"`
	MembersSHA256 []byte           `json:"members_sha256"`
}

// sealed is what is kept of a run; nil: its deliveries are there.
func sealed(ctx context.Context, db deed.DB, id string) (*Sealed, error) {
	rows, err := db.Query(ctx, query.Sealed, id)
	if err != nil {
		return nil, err
	}
	text, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	s := new(Sealed)
	if err == nil {
		err = json.Unmarshal([]byte(text), s)
	}
	return s, err
}

// mayBeAddress is as deed.count_job has it.
var mayBeAddress = regexp.MustCompile(`@|%40|[0-9][0-9 ()./-]{5,}[0-9]`)

// sealOf computes what is kept of a run.
func sealOf(ctx context.Context, tx pgx.Tx, id string) (s Sealed, err error) {
	r, err := Summarise(ctx, tx, id)
	if err != nil {
		return s, err
	}
	p, err := Verify(ctx, tx, id, 1)
	if err != nil {
		return s, err
	}
	s = Sealed{Heard: r.Heard, Skipped: kinds(r.Skipped), Failed: r.Failed, Results: r.Results, Found: p.Found, Counts: map[string]int64{}}
	for i, f := range s.Failed {
		if mayBeAddress.MatchString(f.Code) {
			s.Failed[i].Code = ""
		}
	}
	sum := sha256.New()
	err = proveMembers(ctx, tx, id, sum, s.Counts)
	s.MembersSHA256 = sum.Sum(nil)
	return s, err
}

// kinds are what stands of reasons before the first colon, as a person may have written the rest, each once, and nothing that may be an address.
func kinds(reasons []Reason) []Reason {
	list := []Reason{}
	for _, why := range reasons {
		why.Reason, _, _ = strings.Cut(why.Reason, ":")
		if mayBeAddress.MatchString(why.Reason) {
			why.Reason = ""
		}
		same := func(o Reason) bool { return o.Status == why.Status && o.Reason == why.Reason }
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i].Count += why.Count
		} else {
			list = append(list, why)
		}
	}
	slices.SortStableFunc(list, func(a, b Reason) int { return cmp.Compare(b.Count, a.Count) })
	return list
}

// retain seals runs whose retention is over and removes their deliveries, until ctx ends.
func (w *Worker) retain(ctx context.Context) {
	for work.Sleep(ctx, retainEvery) {
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = w.Retain(ctx); err != nil && ctx.Err() == nil {
				w.opts.Logger.Warn("runs whose retention is over were not removed; will try again", "error", err)
			}
		}
	}
}

// Retain takes one small step towards being rid of the deliveries of runs whose retention is over, and
// reports whether there may be another, also beside an error that is about one run alone: that one is tried again
// after all others. [Worker.Run] does so every minute. In one process one at a time.
func (w *Worker) Retain(ctx context.Context) (more bool, err error) {
	if w.opts.Retention == 0 {
		return false, nil
	}
	removed, err := w.purge(ctx)
	if err != nil || removed != nil {
		return err == nil, err
	}
	return w.seal(ctx)
}

// purge removes some deliveries of a run that is sealed; nil: there is none.
func (w *Worker) purge(ctx context.Context) (removed *int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statement)
	defer cancel()
	err = w.pool.QueryRow(ctx, query.Purge, purgedAtOnce, w.opts.Worker).Scan(&removed)
	return removed, err
}

// seal seals a run whose retention is over, and reports whether there was one: of one snapshot, so that
// what is kept of it fits together.
func (w *Worker) seal(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sealing)
	defer cancel()
	var id *string
	err = pgx.BeginTxFunc(ctx, w.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		// Without a copy the two would share what is behind open.
		if err := tx.QueryRow(ctx, query.ToSeal, w.opts.Retention.Seconds(), append(slices.Clip(w.open), w.unsealed...)).Scan(&id); err != nil || id == nil {
			return err
		}
		s, err := sealOf(ctx, tx, *id)
		if err != nil {
			return err
		}
		if s.Found["open"] > 0 {
			w.open = append(w.open, *id)
			w.opts.Logger.Error("the retention of a run of a campaign is over, and it has deliveries that have not ended: deed campaign verify says which; it stays", "run", *id)
			return nil
		}
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, query.Seal, *id, string(text), w.opts.Worker); err != nil {
			return err
		}
		w.opts.Logger.Info("the retention of a run of a campaign is over; its deliveries go, and what became of them is kept", "run", *id)
		return nil
	})
	switch {
	case err != nil && sqlstate.Again(err): // another worker has it
		return true, nil
	case err != nil && id != nil:
		w.unsealed = append(w.unsealed, *id)
		return true, fmt.Errorf("seal run %s: %w", *id, err)
	case err == nil && id == nil:
		w.unsealed = nil // the next look tries them
	}
	return id != nil, err
}

// proveMembers writes the lines that a proof of a run has of its members, and counts them by their status.
func proveMembers(ctx context.Context, db deed.DB, id string, w io.Writer, counts map[string]int64) error {
	for after, n := int64(0), proofPage; n == proofPage; {
		rows, err := db.Query(ctx, query.ProvedMembers, id, after, proofPage)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m ProvedMember, err error) {
			return m, row.Scan(&m.N, &m.Contact, &m.Delivery, &m.Status, &m.ProviderID, &m.RequestSHA256, &m.FinishedAt, &m.Variant)
		})
		if err != nil {
			return err
		}
		for _, m := range list {
			if m.FinishedAt != nil { // the same wherever it is written
				at := m.FinishedAt.UTC()
				m.FinishedAt = &at
			}
			if err := proofLine(w, m); err != nil {
				return err
			}
			counts[m.Status]++
			after = m.N
		}
		n = len(list)
	}
	return nil
}
