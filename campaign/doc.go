// Package campaign brings something to many people once: it keeps a row for each of them, so
// that afterwards it can be shown that everybody was reached, and nobody twice (C4).
//
// [Put] keeps what is said, an [Audience] to whom; [Deploy] makes a run of both, in the
// caller's transaction. A [Worker] then reserves a delivery for each member, batch by batch,
// and ends jobs and runs by what became of those. It calls no provider: a delivery.Ledger
// does.
//
// docs/campaigns.md says how a run goes, and what each status means.
package campaign
