package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Difference is where a stored snapshot is not what the events say.
type Difference struct {
	Run string `json:"run_id"`
	Seq int64  `json:"last_event_seq"`
	// Stored is what is there, and Projected what the events come to; null where the log
	// ends before.
	Stored    json.RawMessage `json:"stored"`
	Projected json.RawMessage `json:"projected"`
	// Missing is the number of the event that the log lacks; then nothing was compared.
	Missing int64 `json:"missing,omitempty"`
}

// Rebuild projects a run from its first event on and returns where the stored snapshots
// differ. Unless it only looks, the projection takes the place of all of them, and the
// run goes on if it was stale; a run of which an event is missing is left as it is. Errors:
// [deed.NotFound], [deed.Invalid]; SQLSTATE 40001 where it was redacted meanwhile, and nothing
// was changed: call it again.
func Rebuild(ctx context.Context, db deed.DB, id string, look bool) (list []Difference, err error) {
	list, err = rebuild(ctx, db, id, look)
	if look && err == nil && len(list) > 0 { // or it was redacted between the looks at its snapshots and its events, which happens once
		list, err = rebuild(ctx, db, id, look)
	}
	return list, err
}

func rebuild(ctx context.Context, db deed.DB, id string, look bool) (list []Difference, err error) {
	const op = "rebuild run"
	r, err := Find(ctx, db, id) // before its events
	if err != nil {
		return nil, err
	}
	var s Snapshot
	stored, err := storedOf(ctx, db, id, 0)
	for first := true; err == nil && (first || len(stored) > 0); first = false {
		var found []Difference
		s, found, err = compare(ctx, db, id, s, stored)
		list = append(list, found...)
		if err != nil || look || len(list) > 0 && list[len(list)-1].Missing > 0 {
			return list, err
		}
		if err = replace(ctx, db, id, s, r.RedactedAt != nil); err == nil { // beside a projector, which may have got further
			stored, err = storedOf(ctx, db, id, s.LastEventSeq)
		}
	}
	return list, wrap(op, err)
}

func replace(ctx context.Context, db deed.DB, id string, s Snapshot, redacted bool) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	rows, err := db.Query(ctx, query.Replace, id, s.LastEventSeq, string(text), redacted)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	return err
}

// kept is a snapshot that is stored.
type kept struct {
	Seq  int64
	Text []byte
}

func storedOf(ctx context.Context, db deed.DB, id string, after int64) ([]kept, error) {
	rows, err := db.Query(ctx, query.Stored, id, after)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[kept])
}

// compare projects the run from s on, and holds each of its snapshots against that.
func compare(ctx context.Context, db deed.DB, id string, s Snapshot, snapshots []kept) (_ Snapshot, list []Difference, err error) {
	for {
		events, err := Events(ctx, db, id, s.LastEventSeq, eventsAtOnce)
		if err != nil {
			return s, list, err
		}
		last := len(events) < eventsAtOnce
		for len(events) > 0 || last {
			n := len(events)
			if len(snapshots) > 0 { // up to the next one that is stored
				n = min(n, int(snapshots[0].Seq-s.LastEventSeq))
			}
			s, err = s.Apply(events[:n]...)
			if gap, ok := errors.AsType[*GapError](err); ok {
				return s, append(list, Difference{Run: id, Missing: gap.Expected}), nil
			} else if err != nil {
				return s, list, err
			}
			events = events[n:]
			if len(snapshots) == 0 || snapshots[0].Seq > s.LastEventSeq && len(events) == 0 {
				break
			}
			d, err := differs(id, s, snapshots[0])
			if err != nil {
				return s, list, err
			}
			list = append(list, d...)
			snapshots = snapshots[1:]
		}
		if last {
			break
		}
	}
	for _, ahead := range snapshots {
		list = append(list, Difference{Run: id, Seq: ahead.Seq, Stored: ahead.Text})
	}
	return s, list, nil
}

// differs compares by what is said, whatever the order and the spaces.
func differs(id string, s Snapshot, with kept) ([]Difference, error) {
	projected, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var there Snapshot
	if json.Unmarshal(with.Text, &there) == nil {
		if text, err := json.Marshal(there); err == nil && bytes.Equal(text, projected) {
			return nil, nil
		}
	}
	return []Difference{{Run: id, Seq: with.Seq, Stored: with.Text, Projected: projected}}, nil
}

// idsAtOnce bounds how many runs are listed in one statement.
const idsAtOnce = 1000

// Each calls do with the id of each run that db may see, oldest first.
func Each(ctx context.Context, db deed.DB, do func(id string) error) error {
	after := ""
	for {
		rows, err := db.Query(ctx, query.Ids, sqlvalue.NullIfZero(after), idsAtOnce)
		if err != nil {
			return wrap("list runs", err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return wrap("list runs", err)
		}
		for _, id := range list {
			if err := do(id); err != nil {
				return err
			}
		}
		if len(list) < idsAtOnce {
			return nil
		}
		after = list[len(list)-1]
	}
}
