package delivery

import (
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
)

// told is a change that the database decided of a delivery without anybody
// being asked.
type told struct {
	row    *row
	Status Status `json:"status"`
	Held   bool   `json:"held"`
	Reason string `json:"reason"`
}

func readTold(w *row, found *string) (told, error) {
	if found == nil {
		return told{}, errors.New("claim_doubts: a delivery is told of, but not what became of it")
	}
	t := told{row: w}
	return t, json.Unmarshal([]byte(*found), &t)
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

// Every change of a delivery's status has an entry in the audit log and, once
// that is committed, one line here: it has the delivery's ids and from and to,
// which no other line has. A doubt, and that it is held, are changes from
// sending to sending. What is about to be called is told by the batch.

// about returns a log whose lines have a delivery's ids.
func about(log *slog.Logger, w *row) *slog.Logger {
	log = log.With("delivery", w.id, "tenant", w.tenant, "channel", w.channel)
	if w.correlationID != "" {
		log = log.With("correlation_id", w.correlationID)
	}
	if w.channelMsgID != "" {
		log = log.With("channel_message_id", w.channelMsgID)
	}
	return log
}

func (s *source) logOf(w *row) *slog.Logger { return about(s.log, w) }

// withoutRecipient is an error's text for others than the delivery's tenant:
// services repeat whom they refuse.
func (w *row) withoutRecipient(text string) string {
	if w.recipient == "" {
		return text
	}
	return regexp.MustCompile("(?i)"+regexp.QuoteMeta(w.recipient)).ReplaceAllLiteralString(text, "(recipient)")
}

// account logs what has been recorded, once it is committed. Errors are the
// adapters', which keep contents and secrets out of them.
func (s *source) account(st *settlement) {
	doubts := false
	for _, it := range st.items {
		r, ok := st.results[it.id]
		if r.resumed {
			s.dest(&it.row).about(s.log).Info("no longer paused: it answers again")
			s.poke()
		}
		switch {
		case ok:
			doubts = doubts || (r.inDoubt && r.was != "")
			s.tellOutcome(it, r)
		case it.kind != "release" && it.kind != unrepeated:
			if status, told := st.late[it.id]; told {
				log := s.logOf(&it.row).With("outcome", it.out.String(), "status", status)
				if err := it.out.Err(); err != nil {
					log = log.With("error", it.withoutRecipient(err.Error()))
				}
				log.Warn("the outcome of a call came late: deed deliveries show has it")
			}
		}
	}
	if doubts {
		s.pokeReconciler()
	}
}

// tellOutcome logs what became of one delivery.
func (s *source) tellOutcome(it *item, r result) {
	log := s.logOf(&it.row).With("attempts", r.tries)
	if it.action != "" {
		log = log.With("by", it.action) // a doubt was looked at: repeated, or looked up
	}
	if err := it.out.Err(); err != nil && it.kind != "release" {
		log = log.With("error", it.withoutRecipient(err.Error()))
	}
	if it.stack != "" {
		log = log.With("stack", it.stack)
	}
	if r.was == "" {
		if r.inDoubt && it.kind != "release" && it.kind != unrepeated {
			log.Info("delivery is still in doubt", "due", r.due)
		}
		return
	}
	log = log.With("from", r.was, "to", r.status)
	switch {
	case r.held:
		log.Error("delivery is held for a person: deed deliveries doubt lists it")
	case r.inDoubt:
		log.Warn("delivery is in doubt")
	case r.status == Failed:
		log.Warn("delivery failed: refused for good")
	case r.status == Dead:
		log.Error("delivery is dead")
	case r.status == Skipped:
		log.Info("delivery went to the sandbox, and not to its recipient")
	case r.status != Queued:
		log.Debug("delivered", "message_id", it.out.messageID)
	case it.kind == "release":
		log.Info("delivery is queued again: it was not called")
	case it.out.kind == kindOutage:
		log.Info("nobody could be called; the delivery waits for the pause to end")
	default:
		log.Warn("attempt failed; the delivery is retried", "due", r.due)
	}
}

// tellDecisions logs what a claim of doubts decided.
func (r *reconciler) tellDecisions(list []told) {
	for _, t := range list {
		log := r.logOf(t.row).With("from", Sending, "to", t.Status, "attempts", t.row.attempts, "reason", t.row.withoutRecipient(t.Reason))
		switch {
		case t.Held:
			log.Error("delivery is held for a person: deed deliveries doubt lists it")
		case t.Status == Dead:
			log.Error("delivery is dead: its outcome is unknown, and its attempts are spent")
		case t.Status == Queued:
			log.Info("delivery is queued again, by its guarantee or from the sandbox")
		default:
			log.Warn("delivery is in doubt: the lease ran out during the call")
		}
	}
}

// tellClaim logs what a claim has brought, and what it has ended.
func (s *source) tellClaim(c *claiming) {
	if len(c.items) > 0 {
		s.log.Debug("deliveries claimed", "claim", c.items[0].claim, "count", len(c.items))
	}
	for _, it := range c.items {
		if it.takenOver {
			s.logOf(&it.row).Info("took over a delivery whose claim had run out before it was called", "lost_claims", it.lost)
		}
	}
	for _, e := range c.walk.Ended {
		s.logOf(e.row()).Error("delivery is dead: each time its worker died or froze before it could report",
			"from", Queued, "to", Dead, "attempts", e.Attempts, "reason", e.Reason)
	}
}

// tellAttempts logs which deliveries are about to be called.
func (s *source) tellAttempts(ids []string) {
	if len(ids) > 0 {
		s.log.Debug("deliveries are about to be called", "from", Queued, "to", Sending, "deliveries", ids)
	}
}
