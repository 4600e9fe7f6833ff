package delivery

import (
	"context"
	"encoding/json"
	"log/slog"
)

// Every change of a delivery's status has an entry in the audit log and, once
// that is committed, one line here: it has the delivery's ids and from and to,
// which no other line has. A doubt, and that it is held, are changes from
// sending to sending. What is about to be called is told by the batch.

// account logs what has been recorded, once it is committed. Errors are the
// adapters', which keep contents and secrets out of them.
func (s *source) account(st *settlement) {
	doubts := false
	for _, it := range st.items {
		r, ok := st.results[it.id]
		for _, name := range r.resumed {
			var over destination
			if name != "" {
				over = destination{name, it.tenant}
			}
			over.about(s.log).Info("no longer paused: it answers again")
		}
		if len(r.resumed) > 0 {
			s.wake()
		}
		switch l, told := st.late[it.id]; {
		case ok:
			doubts = doubts || (r.inDoubt && r.was != "")
			s.tellOutcome(it, r)
		case told && (l.was != "" || it.kind != "release" && it.kind != unrepeated):
			s.tellLate(it, l)
		}
	}
	if doubts {
		s.wakeReconciler()
	}
}

// tellLate logs that an outcome came when the delivery was another's or finished. What proved
// something is a change, if only from what it was to that.
func (s *source) tellLate(it *item, l late) {
	log := s.logOf(&it.row).With("outcome", it.out.String())
	if l.was != "" {
		log = log.With("from", l.was, "to", l.is)
	} else {
		log = log.With("status", l.is)
	}
	if err := it.out.Err(); err != nil {
		log = log.With("error", it.withoutRecipient(err.Error()))
	}
	log.Warn("the outcome of a call came late: deed deliveries show has it")
}

// proof is what the database made of word that the provider has accepted a delivery.
type proof struct {
	of       row
	provider string
	was, is  Status // "": nothing that the audit log tells of
	ended    bool   // else it had ended otherwise, and stays so
}

func (p *proof) tell(log *slog.Logger) {
	if p.was == "" {
		return
	}
	log = about(log.With("provider", p.provider), &p.of).With("from", p.was, "to", p.is, "attempts", p.of.attempts)
	if p.ended {
		log.Info("delivered: the provider said so")
		return
	}
	log.Warn("the provider said that it had accepted a delivery that had ended otherwise; it stays as it was")
}

// tellProofs logs what events have proved, of which the database has told so, and returns how
// many deliveries that ended.
func (l *Ledger) tellProofs(told string) (ended int, err error) {
	var list []struct {
		ID            string  `json:"id"`
		Tenant        string  `json:"tenant"`
		Provider      string  `json:"provider"`
		Channel       Channel `json:"channel"`
		Attempts      int     `json:"attempts"`
		CorrelationID string  `json:"correlation_id"`
		ChannelMsgID  string  `json:"channel_message_id"`
		Was           Status  `json:"was"`
		Status        Status  `json:"status"`
		Ended         bool    `json:"ended"`
	}
	if err := json.Unmarshal([]byte(told), &list); err != nil {
		return 0, err
	}
	for _, v := range list {
		p := proof{
			of:       row{id: v.ID, tenant: v.Tenant, channel: v.Channel, attempts: v.Attempts, correlationID: v.CorrelationID, channelMsgID: v.ChannelMsgID},
			provider: v.Provider, was: v.Was, is: v.Status, ended: v.Ended,
		}
		p.tell(l.opts.Logger)
		if p.ended {
			ended++
		}
	}
	return ended, nil
}

// tellOutcome logs what became of one delivery.
func (s *source) tellOutcome(it *item, r result) {
	if delivered := r.status == Sent || r.status == Called || r.status == Posted; delivered && !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return // most often; what a line says beside its text is made ready before it is asked whether it is wanted
	}
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
	case r.status == Skipped && it.box != nil:
		log.Info("delivery went to the sandbox, and not to its recipient")
	case r.status == Skipped:
		log.Info("delivery skipped: they have opted out")
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
