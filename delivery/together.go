package delivery

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/internal/work"
)

// Groups says which of the claimed deliveries one call makes: those that the claim
// has paid one call for.
func (s *source) Groups(claimed []*item) [][]*item {
	return groups(claimed, func(it *item) any {
		if it.call == 0 { // claimed one by one
			return it
		}
		return it.call
	})
}

// Groups says which deliveries in doubt are repeated together.
func (r *reconciler) Groups(claimed []*item) [][]*item {
	return groups(claimed, func(it *item) any {
		if it.batch == "" {
			return it
		}
		return it.batch
	})
}

func groups(items []*item, of func(*item) any) [][]*item {
	var list [][]*item
	at := map[any]int{}
	for _, it := range items {
		key := of(it)
		n, ok := at[key]
		if !ok {
			n = len(list)
			at[key] = n
			list = append(list, nil)
		}
		list[n] = append(list[n], it)
	}
	return list
}

// attemptTogether writes that a call is about to be made for all of items that may
// be called, and makes it for them. What cannot be in any batch follows alone; what does
// not fit into this one goes back, since one call is paid for and not two.
func (s *source) attemptTogether(ctx context.Context, items []*item) {
	items = slices.DeleteFunc(items, func(it *item) bool { return s.holds(&it.row) })
	var members, alone []*item
	size, full := 0, false
	for _, it := range items {
		if !s.prepare(ctx, it) {
			continue
		}
		if len(it.request) > mostBatchBytes || !s.batcher.Batchable(it.request) || !s.opts.serves(it.tenant) {
			alone = append(alone, it)
			continue
		}
		if full = size+len(it.request) > mostBatchBytes; full {
			break
		}
		size += len(it.request)
		members = append(members, it)
	}
	s.fit(len(items), len(members), full)
	if len(members) == 1 {
		members, alone = nil, append(alone, members[0])
	}
	if len(members) > 0 {
		s.attemptBatch(ctx, members)
	}
	for _, it := range alone {
		s.attempt(ctx, it)
	}
}

// probed is after how many batches that were all that a claim gives it is tried whether one more fits.
const probed = 10

// fit learns how many deliveries a batch has room for, of which the claim knows the
// payloads and not what is made of them. What goes back has been paid for by its lane and its
// run, so that it learns slowly that there is more room.
func (s *source) fit(had, fitted int, full bool) {
	switch n := s.room.Load(); {
	case full:
		s.room.Store(int32(max(1, fitted)))
		s.fitted.Store(0)
	case n > 0 && had >= int(n) && s.fitted.Add(1) >= probed:
		s.room.Store(min(n+1+n/16, int32(s.batch)))
		s.fitted.Store(0)
	}
}

// mostTogether is how many deliveries a claim puts into one call.
func (s *source) mostTogether() int {
	if n := int(s.room.Load()); n > 0 {
		return n
	}
	return s.batch
}

func (s *source) attemptBatch(ctx context.Context, items []*item) {
	id := uuid.New().String()
	begun := time.Now()
	verdicts, err := s.writeAttempt(ctx, id, items...)
	late := s.tooLate(begun) // for all: a part of them under the batch's key would be other bytes
	members := slices.DeleteFunc(items, func(it *item) bool {
		v := verdicts[it.id]
		v.err = err
		return !s.mayCall(ctx, it, v, late)
	})
	if len(members) == 0 {
		return
	}
	s.idle.Store(false) // the name is this ledger's
	crash.Point("calling")
	s.callTogether(ctx, id, members, false)
	crash.Point("called")
	for _, it := range members {
		// Whatever was wrong with it, or with the batch, a call of its own says.
		if it.kind == "refused" {
			it.kind = "apart"
		}
	}
}

// callTogether makes the one call of a batch, and judges it. As in call, one that panics,
// is cut off or ends its goroutine has an unknown outcome.
func (s *source) callTogether(ctx context.Context, id string, items []*item, repeat bool) {
	// The other place where the right to call is made.
	b := Batch{newBatch(id, items, repeat)}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	defer b.of.end()
	begun := time.Now()
	ended := s.timed(items...)
	outs := b.All(Unknown(errNoOutcome))
	defer func() {
		ended(outs[0])
		took := max(0, since(begun))
		for i, it := range items {
			it.out, it.made = outs[i], &made{out: outs[i], took: took, at: time.Now(), key: b.Key()}
		}
		s.judgeTogether(items)
	}()
	outs = s.sendBatch(ctx, b, items[0])
	if len(outs) != len(items) {
		outs = b.All(Unknown(fmt.Errorf("the provider said of %d deliveries what became of them, and not of %d", len(outs), len(items))))
	}
}

func (s *source) sendBatch(ctx context.Context, b Batch, first *item) (outs []Outcome) {
	defer func() {
		if v := recover(); v != nil {
			p := &work.Panic{Value: v, Stack: debug.Stack()}
			outs, first.stack = b.All(Unknown(p)), string(p.Stack)
		}
	}()
	return s.batcher.SendBatch(ctx, b)
}

// judgeTogether is judge of a batch: to its destination it is one call.
func (s *source) judgeTogether(items []*item) {
	// Told of with the first delivery; of lanes alone with one of each.
	told := map[destination]bool{}
	for _, it := range items {
		s.withoutLane(it)
	}
	unknown := !slices.ContainsFunc(items, func(it *item) bool { return !it.out.unanswered() })
	if unknown {
		s.judgeCall(items[0], true, true)
	}
	for _, it := range items {
		dest := s.failing(it)
		if it.out.kind == kindOutage && !told[dest] {
			told[dest] = true
			s.judgeCall(it, true, false)
		}
		it.kind = it.out.settles(dest)
	}
	if !unknown {
		s.watch.count(s.dest(&items[0].row), false)
	}
}

// askTogether repeats a batch in doubt, whole.
func (r *reconciler) askTogether(ctx context.Context, items []*item) {
	first := items[0]
	if r.batcher == nil || len(items) != first.batchSize || first.batchPlace != 1 || slices.ContainsFunc(items, func(it *item) bool { return r.holds(&it.row) }) || !r.opts.serves(first.tenant) {
		return
	}
	begun := time.Now()
	if !r.mayRepeat(ctx, first) || since(begun) >= r.repeatable() {
		return
	}
	crash.Point("repeating")
	r.callTogether(ctx, first.batch, items, true)
	crash.Point("repeated")
	for _, it := range items {
		r.afterRepeat(ctx, it)
	}
}
