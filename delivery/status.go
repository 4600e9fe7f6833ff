package delivery

// Status is where a delivery stands. Doubt is none: it is [Sending] with
// [Entry.DoubtSince].
type Status string

// The statuses. All but Queued and Sending are final.
const (
	Queued  Status = "queued"
	Sending Status = "sending"
	Sent    Status = "sent"
	Called  Status = "called"
	Posted  Status = "posted"
	Failed  Status = "failed"
	Dead    Status = "dead"
	Skipped Status = "skipped"
)

var statuses = []Status{Queued, Sending, Sent, Called, Posted, Failed, Dead, Skipped}
