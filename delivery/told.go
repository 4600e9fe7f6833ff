package delivery

import (
	"encoding/json"
	"errors"
)

// told is what deed.claim_doubts decided of a delivery without anybody being
// asked.
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

// tellDecisions logs them, once they are committed: one line a delivery.
func (r *reconciler) tellDecisions(list []told) {
	for _, t := range list {
		log := r.logOf(t.row).With("from", Sending, "to", t.Status, "attempts", t.row.attempts, "reason", t.Reason)
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
