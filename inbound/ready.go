package inbound

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/work"
)

// Ready says whether requests are taken; an error says what they wait for. Where sources
// have any that takes requests it is nil: another process has the same sources, and what
// one of them waits for is no reason to take the others' requests from this one. In the first
// seconds it is not: what they wait for may begin beside this. Which
// wait is said by [Receiver.Waiting].
func (r *Receiver) Ready() error {
	if err := r.runs(); err != nil {
		return err
	}
	waits := r.waits.Load()
	switch {
	case waits == nil:
		return errNotYet
	case len(*waits) > 0 && (len(*waits) == len(r.sources) || !r.settled.Load()):
		return fmt.Errorf("inbound messages are not taken yet: %s", tellWaits(*waits))
	}
	return nil
}

var errNotYet = errors.New("inbound messages are not taken yet")

// runs says whether [Receiver.Run] has begun, and not ended.
func (r *Receiver) runs() error {
	if r.running.Load() {
		return nil
	}
	if why := r.Held(); why != "" {
		return fmt.Errorf("inbound messages are held: %s", why)
	}
	return errNotYet
}

// Waiting says by their names which sources take nothing yet while others do, and what each
// of them waits for: the provider that its replies go by. Their requests are answered by
// 503, and nothing that is stored of them is run here.
func (r *Receiver) Waiting() map[string]string {
	if waits := r.waits.Load(); waits != nil {
		return maps.Clone(*waits)
	}
	return nil
}

// ready says whether this source takes messages.
func (s *source) ready() error {
	if err := s.receiver.runs(); err != nil {
		return err
	}
	waits := s.receiver.waits.Load()
	if waits == nil {
		return errNotYet
	}
	if why, ok := (*waits)[s.name]; ok {
		return fmt.Errorf("source %s takes no messages yet: %s", s.name, why)
	}
	return nil
}

// awaitProviders has each source begin when the provider is registered that its replies go
// by, since before that none could be reserved. It returns when all have begun, or ctx has
// ended.
func (r *Receiver) awaitProviders(ctx context.Context, begin map[string]chan struct{}) {
	left := maps.Clone(begin)
	asked := false
	for n := 1; ; n++ {
		waits, err := r.lookForProviders(ctx, slices.Collect(maps.Keys(left)))
		if err == nil && !asked { // before the first request, by whose signature it goes
			r.askTime(ctx)
			asked = true
		}
		r.settled.Store(r.settled.Load() || n > 14) // after five seconds
		before := r.waits.Swap(&waits)              // all at once: nobody sees some that begin, and others not yet
		for name, c := range left {
			if _, ok := waits[name]; !ok {
				close(c)
				delete(left, name)
			}
		}
		if len(left) == 0 {
			return
		}
		pause := 100 * time.Millisecond
		if n > 10 {
			pause = time.Second // it may be for ever
		}
		if (n == 10 || n > 10 && (before == nil || !maps.Equal(*before, waits) || n%100 == 0)) && ctx.Err() == nil {
			r.opts.Logger.Warn("sources take no messages yet", "why", tellWaits(waits), "error", err)
		}
		if !work.Sleep(ctx, pause) {
			return
		}
	}
}

// lookForProviders returns which of these sources wait, and for what.
func (r *Receiver) lookForProviders(ctx context.Context, sources []string) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Deadline)
	defer cancel()
	names := []string{}
	for _, name := range sources {
		if by := r.sources[name].opts.Reply.Provider; by != "" && !slices.Contains(names, by) {
			names = append(names, by)
		}
	}
	var missing []string
	err := r.pool.QueryRow(ctx, query.Unregistered, names).Scan(&missing)
	waits := map[string]string{}
	for _, name := range sources {
		switch by := r.sources[name].opts.Reply.Provider; {
		case err != nil:
			waits[name] = "the database does not answer"
		case slices.Contains(missing, by):
			waits[name] = fmt.Sprintf("replies go by %s, which no dispatcher has registered", by)
		}
	}
	return waits, err
}

// tellWaits says which sources wait for what.
func tellWaits(waits map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(waits)) {
		list = append(list, fmt.Sprintf("source %s: %s", name, waits[name]))
	}
	return strings.Join(list, "; ")
}
