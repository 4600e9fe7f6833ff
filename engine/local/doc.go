// Package local executes runs of workflow plans in the process that has it: the embedded engine (R5, R12, R15).
//
// The store decides and the engine executes: which steps are due, what follows from an end and when a run
// has ended, deed.finish_steps says, in one place for every engine. An [Engine] claims steps that are due, does them and records what became of
// them, in the same round trip in which it claims the next. Any number of engines may run, in any number of processes; they
// share the work. One that dies leaves leases that run out, and the others go on.
//
// A step that has been begun may be begun again: after a crash, a lost lease or a stop nobody knows how far it came. So its
// calls to the outside give [github.com/deedhq/deed/run.Key] as their idempotency key. A message of a step of kind publish
// commits with its StepCompleted: it is published exactly once. So is the delivery of a step of kind deliver: it is reserved
// in the transaction in which its step ends, or waits for it, and sent by a [github.com/deedhq/deed/delivery.Ledger].
//
// A step of kind external is computed by an engine, and done by workers in other languages (deed.claim_external).
package local
