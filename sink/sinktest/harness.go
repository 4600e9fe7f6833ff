package sinktest

import (
	"time"

	"github.com/deedhq/deed"
)

// Features says which of a harness's optional parts are there.
type Features struct {
	Batch   bool // the sink is a [deed.BatchSink]
	Headers bool // [Arrival.Headers] is filled in
	Down    bool // Down and Up
	Slow    bool // Slow
	Refuse  bool // Refuse
	InTurn  bool // a refusal for good is known before the key's next message is sent
}

// A Harness is a sink and the destination that it delivers to.
type Harness struct {
	Sink     deed.Sink
	Features Features

	// Arrived returns what the destination has accepted so far, oldest first.
	// It is called at any time, from any goroutine.
	Arrived func() []Arrival

	// Down makes the destination impossible to connect to, and breaks the
	// connections that exist; Up undoes it.
	Down, Up func()

	// Slow makes the destination take d over each message before it accepts it.
	Slow func(d time.Duration)

	// TooLarge is the size of a payload that the sink itself refuses. Default: it
	// refuses none.
	TooLarge int

	// Refuse makes the destination ask judge before it accepts a message. judge
	// may be called by several goroutines at once.
	Refuse func(judge func(payload []byte) Verdict)
}

// Arrival is a message as the destination has it.
type Arrival struct {
	ID      string            // the message id
	Topic   string            // all of these with the sink's encoding undone
	Key     string            // "" if the sink carries none
	Type    string            // "" if the sink carries none
	Payload []byte            // byte for byte
	Headers map[string]string // the message's own, by lower-case name
}

// Verdict is a destination's answer to a message.
type Verdict int

const (
	// Accept takes the message.
	Accept Verdict = iota
	// ForNow refuses this message, but it may be tried again. It is about the
	// message, not about the destination as a whole.
	ForNow
	// ForGood refuses this message for ever. A sink that can tell ends it at
	// once; for others it is as ForNow.
	ForGood
)
