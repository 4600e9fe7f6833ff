// Package run keeps what happens in runs of workflow plans (R1 to R8, R12, R13).
//
// A run is told by its events and by nothing else. [Create] makes one for a request, and
// finds it again when the request is repeated. Workers [Append] events to its log, in the
// transaction of what they are about: the log numbers them without a gap, in the order of
// commits, knows a repeat by what it says, and never changes; an [Appender] is for many goroutines who have no
// transaction. Each event reaches the topic
// [Topic] in the same transaction.
//
// What the package does not do: it decides nothing. Which steps are due, and when a run has
// ended, is an engine's to say; [Append] refuses such events.
package run
