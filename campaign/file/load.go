package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
)

// LoadOptions tune [Source.Load]. The zero value works.
type LoadOptions struct {
	// LeaveOut has bad rows left out. By default all others are loaded, and the audience is not made
	// ready; one that is, without some of these rows, is refused.
	LeaveOut bool
	// Batch is how many rows a transaction takes, up to 10,000. Default 1000.
	Batch int
	// Rejected, if not nil, is told of each bad row, in order, and why it is none.
	Rejected func(line int, why string)
	// Progress, if not nil, is told after each transaction how it stands.
	Progress func(Loaded)
}

// Loaded is how the rows of a source have fared.
type Loaded struct {
	Audience string `json:"audience_id"`
	Rows     int64  `json:"rows"` // of the source
	Read     int64  `json:"read"` // of these by now
	Members  int64  `json:"members"`
	LeftOut  int64  `json:"left_out"`
	Ready    bool   `json:"ready"`
}

// loading is the deadline of a batch.
const loading = 2 * time.Minute

// mostBytes is after how much data a transaction takes no more rows.
const mostBytes = 16 << 20

// Load makes an audience of the rows, or finds the one that was made of the same rows. It goes on where it was
// interrupted: each transaction of a batch notes how far the source has been read. Never is an audience
// ready that has not all of them. Errors: [deed.Invalid] where rows are bad, and are not to be left out;
// [deed.Conflict] where another process loads them as well; [deed.Forbidden].
func (s *Source) Load(ctx context.Context, db deed.DB, scope campaign.Scope, channel campaign.Channel, opts LoadOptions) (Loaded, error) {
	l := &loader{source: s, db: db, opts: opts}
	l.opts.Batch = cmp.Or(opts.Batch, 1000)
	if l.opts.Batch < 1 || l.opts.Batch > 10000 {
		return Loaded{}, &deed.Error{Op: "load audience", Code: deed.Invalid, Err: fmt.Errorf("a batch of %d rows is not from 1 to 10000", opts.Batch)}
	}
	if l.opts.Rejected == nil {
		l.opts.Rejected = func(int, string) {}
	}
	var err error
	if l.to, err = campaign.OpenAudience(ctx, db, scope, s.audience(), channel); err != nil {
		return Loaded{}, err
	}
	if !l.to.Ready {
		if err := l.run(ctx); err != nil {
			return l.loaded(), fmt.Errorf("%s: %d of %d rows are loaded, and the same again goes on there: %w", s.Name, l.to.Read, s.Rows, err)
		}
	}
	if l.to.LeftOut > 0 && !opts.LeaveOut {
		return l.loaded(), &deed.Error{Op: "load audience", Code: deed.Invalid, Err: fmt.Errorf(
			"%s: %d of %d rows are bad, and nobody is written to: mend them, or have them left out (--leave-out-bad)", s.Name, l.to.LeftOut, s.Rows)}
	}
	if l.to.Ready {
		return l.loaded(), nil
	}
	if err := l.to.Finish(ctx, db); err != nil {
		return l.loaded(), err
	}
	return l.loaded(), nil
}

type loader struct {
	source *Source
	db     deed.DB
	opts   LoadOptions
	to     *campaign.Audience
}

func (l *loader) loaded() Loaded {
	return Loaded{Audience: l.to.ID, Rows: l.source.Rows, Read: l.to.Read, Members: l.to.Members, LeftOut: l.to.LeftOut, Ready: l.to.Ready}
}

func (l *loader) run(ctx context.Context) error {
	var batch []row
	size := 0
	err := l.source.each(l.to.Read, func(r row) (bool, error) {
		batch = append(batch, r)
		if size += len(r.Data); len(batch) < l.opts.Batch && size < mostBytes {
			return true, nil
		}
		err := l.store(ctx, batch)
		batch, size = batch[:0], 0
		return true, err
	})
	if err == nil && len(batch) > 0 {
		err = l.store(ctx, batch)
	}
	return err
}

// store puts a batch's good rows into the audience. The database says which are not, of the
// others.
func (l *loader) store(ctx context.Context, batch []row) error {
	ctx, cancel := context.WithTimeout(ctx, loading)
	defer cancel()
	type bad struct {
		line int
		why  string
	}
	var refused []bad
	good := make([]row, 0, len(batch))
	for _, r := range batch {
		if r.Bad != "" {
			refused = append(refused, bad{r.Line, r.Bad})
		} else {
			good = append(good, r)
		}
	}
	for {
		err := l.to.AddRead(ctx, l.db, l.to.Read+int64(len(batch)), l.to.LeftOut+int64(len(refused)), members(good)...)
		of, ok := errors.AsType[*campaign.MembersError](err)
		if !ok {
			if err != nil {
				return err
			}
			break
		}
		if at := of.Members[0].N - l.to.Members - 1; deed.CodeOf(err) != deed.Invalid && at >= 0 && at < int64(len(good)) {
			return fmt.Errorf("line %d: %w", good[at].Line, err) // such as of a contact that is gone
		}
		why := map[int64]string{}
		for _, m := range of.Members {
			why[m.N-l.to.Members-1] = m.Problem
		}
		left := make([]row, 0, len(good))
		for i, r := range good {
			if problem, is := why[int64(i)]; is {
				refused = append(refused, bad{r.Line, problem})
			} else {
				left = append(left, r)
			}
		}
		if len(left) == len(good) {
			return err // it is of none of these
		}
		good = left
	}
	slices.SortStableFunc(refused, func(a, b bad) int { return cmp.Compare(a.line, b.line) })
	for _, r := range refused {
		l.opts.Rejected(r.line, r.why)
	}
	if l.opts.Progress != nil {
		l.opts.Progress(l.loaded())
	}
	return nil
}

func members(rows []row) []campaign.Member {
	ms := make([]campaign.Member, len(rows))
	for i, r := range rows {
		ms[i] = campaign.Member{Address: r.Address, Contact: r.Contact, Zone: r.Zone, Data: r.Data}
	}
	return ms
}
