package delivery

import (
	"context"
	"errors"
	"fmt"

	"github.com/deedhq/deed/internal/idempotency"
)

// sandboxKey is another for each claim: a provider that knows the delivery's
// own key would answer with the first request's outcome, or refuse another.
func (w *row) sandboxKey() string {
	return providerKey("deed-sandbox-", idempotency.Key(w.tenant, w.workspace, string(w.key), fmt.Sprint(w.claim)))
}

// forSandbox makes the request that goes to the sandbox.
func (s *source) forSandbox(ctx context.Context, it *item) *sandboxed {
	d := it.draft()
	d.ID, d.Key = sandboxID+d.ID, it.sandboxKey()
	d.Recipient, d.RecipientID, d.SandboxFor = s.opts.Sandbox, "", d.Recipient
	b := &sandboxed{address: d.Recipient, key: d.Key}
	if b.err = s.fill(ctx, it, &d); b.err == nil {
		b.request, b.err = s.render(it.channel, d)
	}
	return b
}

// marked says of an outcome in the sandbox that it is one.
func marked(o Outcome) Outcome {
	if o.err != nil {
		o.err = fmt.Errorf("in the sandbox: %w", o.err)
	}
	return o
}

// ErrOtherRecipient says that a stored request names another recipient than its
// delivery does. Adapters refuse such a call with it.
var ErrOtherRecipient = errors.New("the stored request names another recipient than the delivery, as an older version made them for a sandbox; reserve it under another key")
