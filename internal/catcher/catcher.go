// Package catcher has services that catch what they are sent: an SMTP server, and fakes of
// those that providers call over HTTP. deed dev shows their mailbox, and tests make them fail in
// every way. They refuse what the real ones refuse.
package catcher

import (
	"sync"
	"time"
)

// Mail is what was accepted.
type Mail struct {
	ID      string    `json:"id"`
	Via     string    `json:"via"` // the service
	Key     string    `json:"key,omitempty"`
	From    string    `json:"from"`
	To      []string  `json:"to"`
	Subject string    `json:"subject"`
	Text    string    `json:"text,omitempty"`
	At      time.Time `json:"at"`

	Headers     map[string][]string `json:"headers,omitempty"` // of an e-mail that came as one
	Attachments []Attachment        `json:"attachments,omitempty"`

	Raw []byte `json:"-"` // as it arrived
}

// Mailbox keeps what was accepted, the newest thousand.
type Mailbox struct {
	// Accepted, if not nil, is called for each mail before its answer.
	Accepted func(Mail)

	mu   sync.Mutex
	list []Mail
}

const mostMail = 1000

// Add puts a mail into the box.
func (b *Mailbox) Add(m Mail) {
	m.Attachments = attachmentsOf(m.Raw)
	if b.Accepted != nil {
		b.Accepted(m)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == mostMail {
		b.list = append(b.list[:0], b.list[1:]...)
	}
	b.list = append(b.list, m)
}

// List returns what is in the box, oldest first.
func (b *Mailbox) List() []Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Mail{}, b.list...)
}

// Raw is what is in the box as it arrived.
func (b *Mailbox) Raw() (list [][]byte) {
	for _, m := range b.List() {
		list = append(list, m.Raw)
	}
	return list
}

// Recipients are those of all that is in the box.
func (b *Mailbox) Recipients() (list []string) {
	for _, m := range b.List() {
		list = append(list, m.To...)
	}
	return list
}

// Fault is a way in which a server fails.
type Fault string

// The faults, under the names that package providertest has. Those with "Accepted" take
// the mail first.
const (
	None          Fault = ""
	ForGood       Fault = "ForGood"       // refused for good
	ForNow        Fault = "ForNow"        // refused for now
	ForNowAfter   Fault = "ForNowAfter"   // refused for now, for a second
	HangBefore    Fault = "HangBefore"    // no answer, not accepted
	HangAccepted  Fault = "HangAccepted"  // no answer, accepted
	ResetBefore   Fault = "ResetBefore"   // connection reset, not accepted
	ResetAccepted Fault = "ResetAccepted" // connection reset, accepted
	SlowAccepted  Fault = "SlowAccepted"  // an answer that never ends, accepted
	Redirect      Fault = "Redirect"      // a redirect
	Garbage       Fault = "Garbage"       // an answer that cannot be read, accepted
	ServerError   Fault = "ServerError"   // an error of the server, accepted
	ShortAccepted Fault = "ShortAccepted" // an answer that lacks something, accepted; of Resend
	CutAfterOK    Fault = "CutAfterOK"    // connection cut after the answer, accepted
	Unauthorized  Fault = "Unauthorized"  // the credentials are refused
	OverQuota     Fault = "OverQuota"     // the account's quota is exceeded
	BadAddress    Fault = "BadAddress"    // refused, since nobody is there
	OptedOut      Fault = "OptedOut"      // refused, since they want nothing from this sender
)

// Faults decides, for the n-th time that a server is about to take something,
// how it fails. It may be called by several goroutines at once.
type Faults struct {
	mu     sync.Mutex
	n      int
	decide func(n int) Fault
}

// Set replaces what decides, and begins to count at 1; nil: no faults.
func (f *Faults) Set(decide func(n int) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n, f.decide = 0, decide
}

// First sets a fault for the first times, below 0 for all, and none after.
func (f *Faults) First(fault Fault, times int) {
	f.Set(func(n int) Fault {
		if n <= times || times < 0 {
			return fault
		}
		return None
	})
}

func (f *Faults) next() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if f.decide == nil {
		return None
	}
	return f.decide(f.n)
}

// Count is how many times a server was about to take something since Set.
func (f *Faults) Count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}
