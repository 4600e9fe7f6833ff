package delivery

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/errortext"
)

// queueNotes keeps what came of the calls that succeeded, or of those that did
// not. What did not is kept before deed.settle acts on it. What did leaves
// nothing unless it is somebody else's or finished by now, which is cheapest seen
// afterwards.
func (s *source) queueNotes(batch *pgx.Batch, items []*item, came map[string]late, succeeded bool) {
	var ids, outcomes []string
	var claims []int64
	var numbers []int
	var messages, codes, errs, keys []*string
	var boxes []bool
	var took []float64
	for _, it := range items {
		m := it.made
		if m == nil || (m.out.kind == kindAccepted) != succeeded {
			continue
		}
		var text *string
		if m.out.kind != kindAccepted {
			v := errortext.Stored(m.out.Err().Error(), maxError, it.lane)
			text = &v
		}
		ids, claims, numbers, outcomes = append(ids, it.id), append(claims, it.claim), append(numbers, it.attempts), append(outcomes, m.out.String())
		messages, codes, errs = append(messages, orNil(clip(m.out.messageID))), append(codes, orNil(clip(m.out.code))), append(errs, text)
		keys, boxes, took = append(keys, orNil(m.key)), append(boxes, m.box), append(took, m.took.Seconds())
	}
	if len(ids) == 0 {
		return
	}
	batch.Queue(query.Note, ids, claims, numbers, outcomes, messages, codes, errs, keys, boxes, took, s.ledger.opts.Worker).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id string
			var l late
			if err := rows.Scan(&id, &l.is, &l.was); err != nil {
				return err
			}
			came[id] = l
		}
		return rows.Err()
	})
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// Attempt is a call that did not simply succeed, or something that was learnt
// of one later.
type Attempt struct {
	Number  int       `json:"number"`            // 0 of a proof
	Outcome string    `json:"outcome"`           // as [Outcome.String], or lost: nobody was there to hear, or proved: a later event said that it was accepted
	Late    bool      `json:"late,omitempty"`    // when the delivery was another's or finished
	Sandbox bool      `json:"sandbox,omitempty"` // it went there
	At      time.Time `json:"at"`                // when it was recorded

	BeganAt     *time.Time `json:"began_at,omitempty"`
	TookSeconds float64    `json:"took_seconds,omitempty"`
	Worker      string     `json:"worker"`
	Code        string     `json:"code,omitempty"` // the provider's: an SMTP reply or an HTTP status
	Error       string     `json:"error,omitempty"`
	ProviderKey string     `json:"provider_key,omitempty"` // under which it was made
	MessageID   string     `json:"provider_message_id,omitempty"`
}

// mostAttempts is how many of a delivery's attempts are shown.
const mostAttempts = 100

// Attempts returns the calls of a delivery that did not simply succeed, attempts that count
// and called nobody, and what was learnt later, oldest first, the last hundred of them, and how many there
// are in all. A tenant sees its own.
func (l *Ledger) Attempts(ctx context.Context, id string) (list []Attempt, total int64, err error) {
	if err := checkID("attempts", id); err != nil {
		return nil, 0, err
	}
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	rows, err := l.pool.Query(ctx, query.Attempts, id, mostAttempts)
	if err != nil {
		return nil, 0, deed.WrapError("attempts", err)
	}
	list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a Attempt, err error) {
		err = row.Scan(&a.Number, &a.Outcome, &a.Late, &a.Sandbox, &a.At, &a.BeganAt, &a.TookSeconds, &a.Worker, &a.Code, &a.Error, &a.ProviderKey, &a.MessageID, &total)
		return a, err
	})
	return list, total, deed.WrapError("attempts", err)
}
