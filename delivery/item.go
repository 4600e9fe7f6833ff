package delivery

import (
	"regexp"
	"time"
)

// item is a claimed delivery, and what has become of it.
type item struct {
	row
	kind   string // in deed.settle's words; "" before the attempt
	out    Outcome
	failed bool       // the destination did not answer as it should
	pauses bool       // so that it is to be left alone
	box    *sandboxed // nil: the call goes to the recipient
	made   *made      // nil: no call was made, and none is counted
	stack  string     // of a panic
	place  *place     // where it is called
	at     time.Time  // when its request was made, if it was made under this claim

	weighed bool // guarded by the hand's mu: it is larger than it was claimed
}

func (it *item) draft() Draft {
	d := it.row.draft()
	d.At = it.at
	return d
}

// madeAt is when the request of a campaign's delivery was made, of which it is not kept; nil of
// any other.
func (it *item) madeAt() *time.Time {
	if it.run == "" {
		return nil
	}
	return &it.at
}

// settled says that there is nothing to record: it was skipped, or lost.
const settled = "settled"

// unrepeated says that a repeat was claimed and nothing reached the provider.
const unrepeated = "unrepeated"

// made is a call that was made, whatever a look-up says afterwards, or an attempt that counts and
// called nobody.
type made struct {
	out  Outcome
	took time.Duration
	at   time.Time // when it ended
	key  string    // the provider's; "" if it has none
	box  bool      // it went to the sandbox
}

// writing is a claimed delivery that is about to be called, or several that one
// call makes, and waits for that to be written.
type writing struct {
	items  []*item
	batch  string       // its id; "": each is called alone
	answer chan written // has room for one
}

// written is what became of those that were written together.
type written struct {
	verdicts map[string]verdict // by delivery
	err      error
}

// verdict is what the database says of an attempt; only "sending" may be
// called.
type verdict struct {
	status   string
	attempts int
	why      string // it was skipped, or may not be called: replaced, foreign or paused
	claim    int64  // the newest one under which the statement had it
	err      error
}

// ended is a delivery that a claim has ended, or what looks for those that wait
// for nothing.
type ended struct {
	ID            string  `json:"id"`
	Tenant        string  `json:"tenant"`
	Channel       Channel `json:"channel"`
	Attempts      int     `json:"attempts"`
	CorrelationID string  `json:"correlation_id"`
	ChannelMsgID  string  `json:"channel_message_id"`
	Reason        string  `json:"reason"`

	provider string
}

func (e *ended) row() *row {
	return &row{id: e.ID, tenant: e.Tenant, channel: e.Channel, attempts: e.Attempts, correlationID: e.CorrelationID, channelMsgID: e.ChannelMsgID}
}

// withoutRecipient is an error's text for others than the delivery's tenant:
// services repeat whom they refuse.
func (w *row) withoutRecipient(text string) string {
	if w.recipient == "" {
		return text
	}
	return regexp.MustCompile("(?i)"+regexp.QuoteMeta(w.recipient)).ReplaceAllLiteralString(text, "(recipient)")
}
