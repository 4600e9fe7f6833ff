package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Options says from where on something is trouble. The zero value works.
type Options struct {
	// Long is how long a transaction may stay open, a backfill unfinished or a
	// table with many dead rows unvacuumed. Default 5m.
	Long time.Duration

	// OldXIDs is how many transactions back one may hold the horizon. Default
	// 1,000,000.
	OldXIDs int64

	// DeadRows is how many dead rows a table may have before it matters when
	// it was last vacuumed. Default 100,000.
	DeadRows int64

	// ClockSkew is how far this process's clock may be from the database's.
	// Default 2s.
	ClockSkew time.Duration

	// Environment is that of the processes here; empty: they name none. Another
	// one than the installation's holds them. Default: it is not asked.
	Environment *string

	// Deadline bounds every statement. Default 5s.
	Deadline time.Duration
}

func (o Options) withDefaults() (Options, error) {
	o.Long = cmp.Or(o.Long, 5*time.Minute)
	o.OldXIDs = cmp.Or(o.OldXIDs, 1_000_000)
	o.DeadRows = cmp.Or(o.DeadRows, 100_000)
	o.ClockSkew = cmp.Or(o.ClockSkew, 2*time.Second)
	o.Deadline = cmp.Or(o.Deadline, 5*time.Second)
	var errs []error
	for name, d := range map[string]time.Duration{"Long": o.Long, "ClockSkew": o.ClockSkew} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("option %s %s is negative", name, d))
		}
	}
	if o.OldXIDs < 0 || o.DeadRows < 0 {
		errs = append(errs, fmt.Errorf("option OldXIDs %d or DeadRows %d is negative", o.OldXIDs, o.DeadRows))
	}
	if o.Deadline < 10*time.Millisecond {
		errs = append(errs, fmt.Errorf("option Deadline %s is below 10ms", o.Deadline))
	}
	return o, errors.Join(errs...)
}
