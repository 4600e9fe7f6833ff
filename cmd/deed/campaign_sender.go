package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
)

// senders says which senders of e-mails the provider of that name refuses, where deed.yaml has it, and its
// secrets are there: by the least of an e-mail from them.
func (a *app) senders(pool *pgxpool.Pool, provider string) func(ctx context.Context, from, replyTo string) (refused, err error) {
	return func(ctx context.Context, from, replyTo string) (refused, err error) {
		l, release, err := a.ledgerOf(ctx, pool, provider)
		if err != nil {
			return nil, err
		}
		defer release()
		refused = l.Check(delivery.Delivery{
			Channel: delivery.Email, Provider: provider, Recipient: "somebody@example.com",
			Payload: delivery.EmailPayload{From: from, ReplyTo: replyTo, Subject: "x", Text: "x"}.JSON(),
		})
		if e, ok := errors.AsType[*deed.Error](refused); ok && errors.Unwrap(e.Err) != nil {
			refused = errors.Unwrap(e.Err) // without the number of the delivery
		}
		return refused, nil
	}
}
