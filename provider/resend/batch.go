package resend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/httpcall"
)

// MostBatch is how many e-mails Resend takes in one call.
const MostBatch = 100

var _ delivery.Batcher = (*Provider)(nil)

// Batchable reports whether a request may be one of several: Resend takes no
// attachments in a batch, and none that is to be sent later.
func (p *Provider) Batchable(request []byte) bool {
	var fields struct {
		Attachments json.RawMessage `json:"attachments"`
		ScheduledAt json.RawMessage `json:"scheduled_at"`
	}
	return json.Unmarshal(request, &fields) == nil && fields.Attachments == nil && fields.ScheduledAt == nil
}

// SendBatch posts the requests as one list, under the batch's key.
func (p *Provider) SendBatch(ctx context.Context, b delivery.Batch) []delivery.Outcome {
	bodies := make([][]byte, len(b.Members()))
	for i, m := range b.Members() {
		var err error
		if bodies[i], err = p.request(m); err != nil {
			return b.All(delivery.Refused(fmt.Errorf("an e-mail of the batch: %w", err))) // alone, each says whether it is that one
		}
	}
	if len(bodies) == 0 {
		return nil
	}
	h := adapter.Bearer(p.opts.APIKey)
	h.Set("Content-Type", "application/json")
	h.Set("Idempotency-Key", b.Key())
	h.Set("X-Batch-Validation", "permissive")
	a := httpcall.Post(ctx, p.transport, p.base.JoinPath("emails", "batch"), h, list(bodies))
	outs := p.judgeBatch(b, a)
	for i := range outs {
		outs[i] = outs[i].WithCode(a.Code())
	}
	return outs
}

// list is the JSON list of these values. A repeat needs the same bytes: it never
// changes.
func list(bodies [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(bodies, []byte{','})...), ']')
}

func (p *Provider) judgeBatch(b delivery.Batch, a httpcall.Answer) []delivery.Outcome {
	if a.Err == nil && a.Status == http.StatusConflict {
		// Something has been sent under the key, which nobody else has: this very call, which
		// somebody on the way has repeated, and another batch would have another key.
		var said problem
		_ = json.Unmarshal(a.Body, &said)
		return b.All(delivery.KeyInUse(fmt.Errorf("resend: status %d %s", a.Status, httpcall.Line([]byte(said.Name)))))
	}
	if a.Err != nil || a.Status < 200 || a.Status >= 300 {
		return b.All(p.judgeProblem(a))
	}
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
		Errors []struct {
			Index *int `json:"index"`
		} `json:"errors"`
	}
	unknown := func(what string) []delivery.Outcome {
		return b.All(delivery.Unknown(fmt.Errorf("resend: status %d, %s", a.Status, what)))
	}
	outs := make([]delivery.Outcome, len(b.Members()))
	if err := json.Unmarshal(a.Body, &answer); err != nil {
		return unknown("and no answer to a batch")
	}
	if len(answer.Data)+len(answer.Errors) != len(outs) {
		return unknown(fmt.Sprintf("%d ids and %d errors for %d e-mails", len(answer.Data), len(answer.Errors), len(outs)))
	}
	refused := make([]bool, len(outs))
	for _, e := range answer.Errors {
		if e.Index == nil || *e.Index < 0 || *e.Index >= len(outs) || refused[*e.Index] {
			return unknown("an error for no e-mail of the batch")
		}
		// A message may repeat the request.
		refused[*e.Index], outs[*e.Index] = true, delivery.Refused(errors.New("resend: refused in a batch; it is called alone"))
	}
	next := 0 // the ids are of the others, in their order
	for i := range outs {
		if refused[i] {
			continue
		}
		if outs[i] = delivery.Accepted(answer.Data[next].ID); answer.Data[next].ID == "" {
			return unknown("and an e-mail without an id")
		}
		next++
	}
	return outs
}
