// Package delivery is the ledger of provider calls: e-mails, calls, posts and
// whatever else reaches a person through a provider.
//
// A delivery is a row before anyone calls a provider: [Reserve] makes it,
// alone or by the hundred thousand, in the transaction that owes it. A
// [Ledger] then attempts it, one owner at a time: "queued" becomes "sending",
// and commits, before the call, and what the provider said is settled
// under the claim that made the call. The request's bytes are stored before
// the first call and sent unchanged ever after.
//
// # What it promises
//
//   - A provider is called only with a [Reservation], and only the ledger can
//     make one: a program that tries does not build.
//   - The same key in the same tenant and workspace is one delivery, however
//     often it is reserved.
//   - A call whose outcome is unknown is never made again on hope. It is in
//     doubt, and settled by the first of these that the provider has: the
//     same request under the provider's own key, while its window is open;
//     a look-up; a later event ([Ledger.Prove]); otherwise by the delivery's
//     guarantee: [AtMostOnce] is held for a person, [AtLeastOnce] is queued
//     again.
//   - Who is suppressed is skipped, also when the suppression comes after the
//     reservation, up to the attempt.
//   - Statuses change only as the database's table of transitions allows, and
//     every change leaves a row in the audit log.
//
// # What it does not promise
//
// A provider without a key and without a look-up (SMTP is one) cannot tell
// what became of a call that was cut. With [AtMostOnce] such deliveries wait for
// a person; with [AtLeastOnce] they may arrive twice. docs/guarantees.md has the
// table.
package delivery
