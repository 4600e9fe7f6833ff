// Package stream reads a topic that is a stream: from the log, window by window
// and page by page, for one subscription of a process.
//
// For each of the subscription's lanes that this process holds, a [Reader] runs a
// lane: it takes a window from the [Feed], reads its pages, delivers them in the
// order of each key, and records how far it has come. What cannot be delivered
// gets a row in deed.pending and is worked on beside the lanes (aside.go). For all
// subscriptions at once, a [Process] asks what is new and holds the lanes.
//
// What the words mean, and the rules of windows, is in docs/design.md. The files
// stand on each other in this order: window, entry, feed; stream with what lanes
// share, and keys; pages, page and recorder; assignment; lane; lanes; aside; reader;
// process; watch and assign.
package stream
