package campaign

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
)

// Heard is what has been said of a run's deliveries that went out, by providers and by who has left by
// the link of one: how many of them each was said of.
type Heard struct {
	// Proved are those that ended otherwise, and had been accepted after all.
	Proved       int64 `json:"proved"`
	Delivered    int64 `json:"delivered"`
	Bounced      int64 `json:"bounced"`      // for good, or dropped by the service
	SoftBounced  int64 `json:"soft_bounced"` // for now
	Complained   int64 `json:"complained"`
	Unsubscribed int64 `json:"unsubscribed"`
	Opened       int64 `json:"opened"`
	Clicked      int64 `json:"clicked"`
}

// Rates are parts of what went out, from 0 to 1.
type Rates struct {
	Delivered    float64 `json:"delivered"`
	Bounced      float64 `json:"bounced"`
	Complained   float64 `json:"complained"`
	Unsubscribed float64 `json:"unsubscribed"`
	Opened       float64 `json:"opened"`
	Clicked      float64 `json:"clicked"`
}

// Failure counts those that failed or are dead for the same reason.
type Failure struct {
	Status string `json:"status"`
	// Outcome is that of the last call, as deed deliveries show has it, and Code the
	// provider's; empty where nobody was called.
	Outcome string `json:"outcome,omitempty"`
	Code    string `json:"code,omitempty"`
	Count   int64  `json:"count"`
}

// VariantOf is what became of those who got a variant, of what is expanded by now.
type VariantOf struct {
	Name string `json:"variant"`
	// Part is test, rest (of the winner), or "" where there is no test.
	Part         string `json:"part,omitempty"`
	Members      int64  `json:"members"`
	Sent         int64  `json:"sent"`
	Delivered    int64  `json:"delivered"`
	Bounced      int64  `json:"bounced"`
	Complained   int64  `json:"complained"`
	Unsubscribed int64  `json:"unsubscribed"`
	Opened       int64  `json:"opened"`
	Clicked      int64  `json:"clicked"`
}

// Report is what has become of a run.
type Report struct {
	Run
	Progress Progress `json:"progress"`
	Heard    Heard    `json:"heard"`
	// Rates is nil as long as nothing went out.
	Rates *Rates `json:"rates,omitempty"`
	// Skipped and Failed are the hundred that are most frequent.
	Skipped []Reason  `json:"skipped"`
	Failed  []Failure `json:"failed"`
	// Results are those of its variants, in order, of each the test before the rest; nil: it has none.
	Results []VariantOf `json:"variant_results,omitempty"`
}

// Summarise returns what has become of a run's members, and of which it is still to come. The
// parts of a run that is under way may be of times that differ a little. Its cost grows with the run. Errors: as [Find].
func Summarise(ctx context.Context, db deed.DB, id string) (r Report, err error) {
	const op = "report on a run of a campaign"
	s, err := Show(ctx, db, id)
	if err != nil {
		return r, err
	}
	r = Report{Run: s.Run, Progress: s.Progress}
	if s.SealedAt == nil {
		err = summarise(ctx, db, id, &r)
	}
	kept, keptErr := sealed(ctx, db, id) // it may have been meanwhile
	if err = cmp.Or(err, keptErr); err != nil {
		return r, wrap(op, err)
	}
	if kept != nil {
		if r.Run, err = Find(ctx, db, id); err != nil {
			return r, err
		}
		r.Heard, r.Skipped, r.Failed, r.Results = kept.Heard, kept.Skipped, kept.Failed, kept.Results
	}
	if sent := float64(r.Progress.Sent); sent > 0 {
		h := r.Heard
		r.Rates = &Rates{
			Delivered: float64(h.Delivered) / sent, Bounced: float64(h.Bounced) / sent, Complained: float64(h.Complained) / sent,
			Unsubscribed: float64(h.Unsubscribed) / sent, Opened: float64(h.Opened) / sent, Clicked: float64(h.Clicked) / sent,
		}
	}
	return r, nil
}

// summarise counts what its deliveries say of a run.
func summarise(ctx context.Context, db deed.DB, id string, r *Report) error {
	rows, err := db.Query(ctx, query.Heard, id)
	if err == nil {
		r.Heard, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Heard])
	}
	if err != nil {
		return err
	}
	if rows, err = db.Query(ctx, query.Skips, id); err == nil {
		r.Skipped, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Reason])
	}
	if err != nil {
		return err
	}
	if rows, err = db.Query(ctx, query.Failures, id); err == nil {
		r.Failed, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Failure])
	}
	if err == nil && len(r.Run.Variants) > 0 {
		if rows, err = db.Query(ctx, query.Variants, id); err == nil {
			r.Results, err = pgx.CollectRows(rows, pgx.RowToStructByPos[VariantOf])
		}
	}
	return err
}

// Reached is what has become of a member of a run's audience.
type Reached struct {
	N       int64  `json:"n"` // its place in the audience, from 1
	Contact string `json:"contact_id"`
	Address string `json:"address,omitempty"` // none of who was erased
	// Delivery is the ledger's; without one Status is waiting, while its job is not expanded,
	// lost, where that is dead, purged, where the run's retention is over, or missing, which [Verify] would find.
	Delivery       string     `json:"delivery_id,omitempty"`
	Status         string     `json:"status"`
	Reason         string     `json:"reason,omitempty"`
	ProviderID     string     `json:"provider_message_id,omitempty"`
	SentAt         *time.Time `json:"sent_at,omitempty"`
	DeliveredAt    *time.Time `json:"delivered_at,omitempty"`
	BouncedAt      *time.Time `json:"bounced_at,omitempty"`
	Bounce         string     `json:"bounce,omitempty"`
	ComplainedAt   *time.Time `json:"complained_at,omitempty"`
	UnsubscribedAt *time.Time `json:"unsubscribed_at,omitempty"`
	OpenedAt       *time.Time `json:"opened_at,omitempty"`
	ClickedAt      *time.Time `json:"clicked_at,omitempty"`
	// Variant is the one that they got or are to get; "": the run has none, or their test is not decided.
	Variant string `json:"variant,omitempty"`
}

// Members returns what has become of up to limit members of a run's audience behind the
// after first ones, in order; fewer: there are no more. Errors: as [Find].
func Members(ctx context.Context, db deed.DB, id string, after int64, limit int) ([]Reached, error) {
	const op = "list members of a run"
	if err := sqlvalue.Count("limit", limit, 1); err != nil {
		return nil, invalidf(op, "%w", err)
	}
	if err := checkID("run", id); err != nil {
		return nil, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Members, id, after, limit)
	if err != nil {
		return nil, wrap(op, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Reached])
	if err == nil && len(list) == 0 {
		_, err = Find(ctx, db, id)
	}
	return list, wrap(op, err)
}

// Finding is what keeps a run from being proved.
type Finding struct {
	// Kind is what is wrong: missing, twice, stranger (a delivery for nobody in the audience),
	// open (though the run has ended), accepted twice, other key, other variant, no hash, other content, other
	// audience, other retry, other counts.
	Kind     string `json:"kind"`
	N        int64  `json:"n,omitempty"` // the member, or the first one of a job; 0: neither
	Contact  string `json:"contact_id,omitempty"`
	Delivery string `json:"delivery_id,omitempty"`
	Detail   string `json:"detail"`
}

// Proof is what [Verify] says of a run.
type Proof struct {
	Run
	Progress Progress `json:"progress"`
	// Findings are the first ones of each kind, and Found how many there are of each.
	Findings []Finding        `json:"findings"`
	Found    map[string]int64 `json:"found"`
	// MembersSHA256 is of a run that is sealed: of the lines that a signed proof of it has of its members.
	MembersSHA256 []byte `json:"members_sha256,omitempty"`
}

// Launched reports whether the run has ended, and everybody in its audience has one
// delivery, which has ended, too (C4).
func (p Proof) Launched() bool { return p.FinishedAt != nil && len(p.Findings) == 0 }

// MarshalJSON has launched beside the fields.
func (p Proof) MarshalJSON() ([]byte, error) {
	type fields Proof
	return json.Marshal(struct {
		fields
		Launched bool `json:"launched"`
	}{fields(p), p.Launched()})
}

// Verify holds a run against its audience, which never changes: each member has exactly one
// delivery, each delivery is of a member, its key and what is said are what they were made
// of, and the provider took none twice. Of each kind of findings the first limit ones are
// listed. Of a run that goes on it finds what is wrong by now, and of one whose deliveries are purged what was found before. Its cost grows with the run. Errors: as [Find].
func Verify(ctx context.Context, db deed.DB, id string, limit int) (p Proof, err error) {
	const op = "verify run of a campaign"
	if err := sqlvalue.Count("limit", limit, 1); err != nil {
		return p, invalidf(op, "%w", err)
	}
	s, err := Show(ctx, db, id)
	if err != nil {
		return p, err
	}
	p = Proof{Run: s.Run, Progress: s.Progress, Found: map[string]int64{}}
	if s.SealedAt == nil {
		if err := verify(ctx, db, id, limit, &p); err != nil {
			return p, wrap(op, err)
		}
	}
	kept, err := sealed(ctx, db, id) // it may have been meanwhile
	if err != nil {
		return p, wrap(op, err)
	}
	if kept != nil {
		if p.Run, err = Find(ctx, db, id); err != nil {
			return p, err
		}
		p.Findings, p.Found, p.MembersSHA256 = nil, kept.Found, kept.MembersSHA256
		for _, kind := range slices.Sorted(maps.Keys(kept.Found)) {
			p.Findings = append(p.Findings, Finding{Kind: kind, Detail: fmt.Sprintf("%d of these, when the run was sealed", kept.Found[kind])})
		}
	}
	return p, nil
}

// verify finds what is wrong by the rows of a run.
func verify(ctx context.Context, db deed.DB, id string, limit int, p *Proof) error {
	rows, err := db.Query(ctx, query.Verify, id, limit)
	if err != nil {
		return err
	}
	p.Findings, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Finding, err error) {
		var total int64
		err = row.Scan(&f.Kind, &f.N, &f.Contact, &f.Delivery, &f.Detail, &total)
		p.Found[f.Kind] = total
		return f, err
	})
	return err
}
