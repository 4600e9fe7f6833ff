package delivery

import "context"

// Batcher is a Provider of which one call may take several deliveries, under a
// key that is the call's: see [Capabilities.Batch].
//
// A batch is of one tenant, and never goes to the sandbox. Who is in it is written
// down before the call. If nobody knows what came of it, it is repeated whole, with
// the same members in the same order under the same key, or never.
type Batcher interface {
	Provider

	// Batchable reports whether a request may be one of several.
	Batchable(request []byte) bool

	// SendBatch makes one call with the requests of b's members, in their order,
	// under b's key, and says what came of each. What it sends is made of nothing
	// else, and is the same whenever it is repeated, by whatever version of the
	// program. If the answer leaves open what became of any, all are [Unknown], and so
	// they are if there is not one outcome for each. What is [Refused] is called alone
	// afterwards, and that decides. As with Send, there is no second attempt.
	SendBatch(ctx context.Context, b Batch) []Outcome
}

// mostBatchBytes bounds the requests of one call together. What alone has more
// goes alone.
const mostBatchBytes = 4 << 20

// Batch is the right to make one call for several deliveries, which are written
// as "sending" together. Only a [Ledger] makes one, and it ends with the call.
// The zero value is none, and has no members.
type Batch struct{ of *batch }

type batch struct {
	id      string
	members []Reservation
	repeat  bool
}

func newBatch(id string, items []*item, repeat bool) *batch {
	b := &batch{id: id, repeat: repeat}
	for _, it := range items {
		b.members = append(b.members, Reservation{&reservation{row: &it.row, repeat: repeat}})
	}
	return b
}

// end ends the right to call.
func (b *batch) end() {
	for _, m := range b.members {
		m.of.over.Store(true)
	}
}

// Key returns the idempotency key of the call: no other has it but its repeats. 47
// characters of a-z, 0-9 and "-".
func (b Batch) Key() string {
	if b.of == nil {
		return ""
	}
	return "deed-batch-" + b.of.id
}

// Members returns the deliveries, in the order of the call. Their own keys have no
// part in it.
func (b Batch) Members() []Reservation {
	if b.of == nil {
		return nil
	}
	return b.of.members
}

// Repeat reports whether an earlier call may have succeeded: the batch's key is
// what makes this one safe.
func (b Batch) Repeat() bool { return b.of != nil && b.of.repeat }

// All returns the same outcome for every member.
func (b Batch) All(o Outcome) []Outcome {
	all := make([]Outcome, len(b.Members()))
	for i := range all {
		all[i] = o
	}
	return all
}
