package delivery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
)

// Rendering is a request that was made again.
type Rendering struct {
	Request []byte `json:"request"`
	SHA256  string `json:"request_sha256"` // Request's, in hexadecimal
	Same    bool   `json:"same"`           // it is the one that was sent, byte for byte
}

// Render makes the request of a campaign's delivery again, which is not kept once the provider has
// accepted it: of what the run says, which never changes, of the row's data, and of when it was made.
// It calls nobody. The ledger needs the delivery's provider, a Composer, and for e-mails that have a
// purpose the Links, whose earlier secrets are tried too. Same is false where one of these makes another
// request of it now, such as a provider with another From, or a later version of the program.
// Errors: [deed.NotFound]; [deed.Conflict] for one that was never called, has been erased, or was called before
// migration 0126; [deed.Invalid], for one that is of no run, where the ledger lacks the provider, or where
// nothing can be made of it any more.
func (l *Ledger) Render(ctx context.Context, id string) (Rendering, error) {
	const op = "render delivery"
	if err := checkID(op, id); err != nil {
		return Rendering{}, err
	}
	sent, err := l.sent(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return Rendering{}, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no delivery %s", id)}
	}
	if err != nil {
		return Rendering{}, deed.WrapError(op, err)
	}
	var not error
	switch {
	case sent.run == "":
		return Rendering{}, invalidf(op, "the delivery %s is of no campaign's run: its request is kept as long as it is", id)
	case sent.erased:
		not = errors.New("it has been erased: nobody knows any more what was in it")
	case sent.sha256 == "":
		not = errors.New("it was never called")
	case sent.at == nil:
		not = errors.New("it was called before deed kept when a request was made (migration 0126)")
	}
	if not != nil {
		return Rendering{}, &deed.Error{Op: op, Code: deed.Conflict, Err: fmt.Errorf("the request of the delivery %s cannot be made again: %w", id, not)}
	}
	at := slices.IndexFunc(l.sources, func(s *source) bool { return s.name == sent.provider })
	if at < 0 || l.opts.Composer == nil {
		return Rendering{}, invalidf(op, "this ledger does not have the provider %s and a Composer, which make the request of the delivery %s", sent.provider, id)
	}
	return l.sources[at].again(ctx, sent)
}

// sent is a delivery that was called.
type sent struct {
	row
	provider string
	at       *time.Time
	erased   bool
	sha256   string
}

func (l *Ledger) sent(ctx context.Context, id string) (*sent, error) {
	ctx, cancel := l.deadline(ctx)
	defer cancel()
	w := &sent{}
	err := l.pool.QueryRow(ctx, query.Draft, id).Scan(&w.id, &w.tenant, &w.workspace, &w.key, &w.channel, &w.recipient, &w.recipientID, (*[]byte)(&w.payload),
		&w.correlationID, &w.channelMsgID, &w.purpose, &w.contact, &w.run, &w.provider, &w.at, &w.erased, &w.sha256)
	return w, err
}

// again makes the request as it was made then, with each of the secrets that links were signed with.
func (s *source) again(ctx context.Context, w *sent) (first Rendering, err error) {
	signed := []*contact.Links{s.ledger.opts.Links}
	if s.ledger.opts.Links != nil {
		signed = append(signed, s.ledger.opts.Links.Previous()...)
	}
	for i, links := range signed {
		r, err := s.againBy(ctx, w, links)
		if err != nil {
			return Rendering{}, deed.WrapError("render delivery", err)
		}
		if r.Same {
			return r, nil
		}
		if i == 0 {
			first = r
		}
	}
	return first, nil
}

func (s *source) againBy(ctx context.Context, w *sent, links *contact.Links) (Rendering, error) {
	d := w.draft()
	d.At, d.Unsubscribe = w.at.UTC(), unsubscribe(links, &w.row, w.at.UTC())
	var err error
	if d.Payload, err = s.ledger.composed(ctx, d); err != nil {
		return Rendering{}, err
	}
	request, err := s.render(w.channel, d)
	if err != nil {
		return Rendering{}, invalidf("render delivery", "%w", err)
	}
	sum := sha256.Sum256(request)
	r := Rendering{Request: request, SHA256: hex.EncodeToString(sum[:])}
	r.Same = r.SHA256 == w.sha256
	return r, nil
}
