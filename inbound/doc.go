// Package inbound takes what people write to us, and answers it once (D8).
//
// A platform's request is verified by its [Source], and each message in it is stored
// before anything is done about it; a repeat, by the platform's id, is known. The sender
// becomes a contact. Then the message's [Executor] runs, and in one transaction, which
// only who still has the message's lease can make, its outcome is recorded and its
// replies are reserved: both or neither. Messages of one sender are run one after the
// other, in their order.
//
// A process that dies leaves its messages to others, and one that was frozen records
// nothing when it comes back. What fails is run again when the platform repeats it, or
// by itself where the platform was told at once that all is well ([AfterAccepted]); after
// ten failures it is held for a person, and so is what ten processes died of.
package inbound
