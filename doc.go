// Package deed makes side effects reliable: every effect that a system owes the
// outside world is written to PostgreSQL in the transaction that owes it,
// before anyone attempts it; it is attempted by one owner at a time; and it
// ends in a recorded outcome.
//
// A publisher calls [Publish] inside its own business transaction. The message
// exists if and only if that transaction commits (O1):
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `insert into orders …`); err != nil {
//			return err
//		}
//		_, err := deed.Publish(ctx, tx, deed.Message{Topic: "orders", Key: "42", Value: order})
//		return err
//	})
//
// A worker makes subscriptions and runs them until its context ends:
//
//	client, err := deed.New(ctx, pool, deed.Options{Subscriptions: []deed.Subscription{
//		deed.Handle("orders", func(ctx context.Context, m deed.Received[Order]) error { … }),
//	}})
//	err = client.Run(ctx)
//
// What is promised: a committed message is delivered to each subscription of
// its topic at least once, whatever crashes on the way, and one that did not
// commit never is. A message is held by one worker at a time, under a lease; a
// worker that lost its lease can no longer record anything. A failure is
// retried with back-off and ends as a dead letter that is kept until an
// operator acts. A topic that is a [Stream] is read in pages and keeps the order
// of each [Message.Key]: that of the commits, if the publishers of the key
// serialise themselves, as those do that lock the same row before they publish.
//
// What is not promised: exactly-once at a destination that cannot drop repeats
// (a crash between a delivery and its record repeats it, under the same
// [Message.ID]), and order in a topic that is a [Queue], which is the default.
// docs/streams.md and docs/guarantees.md say more, with the tests that
// show it; the clauses such as O1 are numbered in docs/contracts.md.
package deed
