// Package deed makes side effects reliable: every effect that a system owes the
// outside world is written to PostgreSQL in the transaction that owes it,
// before anyone attempts it; it is attempted by one owner at a time; and it
// ends in a recorded outcome.
//
// # Publish
//
// [Publish] is called inside a business transaction. The message exists if and
// only if that transaction commits:
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `insert into orders …`); err != nil {
//			return err
//		}
//		_, err := deed.Publish(ctx, tx, deed.Message{Topic: "orders", Key: "42", Value: order})
//		return err
//	})
//
// Package deedsql does the same for database/sql.
//
// # Work on a queue
//
// A topic is a queue unless it is declared otherwise: each message is claimed,
// attempted and finished by itself, in no order. A worker makes subscriptions,
// and runs them until its context ends:
//
//	client, err := deed.New(ctx, pool, deed.Options{Subscriptions: []deed.Subscription{
//		deed.Handle("orders", func(ctx context.Context, m deed.Received[Order]) error { … }),
//	}})
//	err = client.Run(ctx)
//
// What the function returns says what is next: nil, it is delivered; [After], try
// again then; [Permanent], never again; [Unavailable], the destination is down, and
// this was no attempt; any other error is retried with back-off, and after
// [Subscription.MaxAttempts] the message is a dead letter.
//
// # Read a stream
//
// A topic that is declared with [ModeStream] is read in pages, and keeps the order of
// each [Message.Key]: that of the commits, if the publishers of the key serialise
// themselves, as those do that lock the same row before they publish. The packages
// sink/kafka, sink/nats and sink/webhook are sinks for subscriptions of either mode:
//
//	deed.Options{
//		Topics:        []deed.Topic{{Name: "orders", Mode: deed.ModeStream}},
//		Subscriptions: []deed.Subscription{{Topic: "orders", Name: "to-kafka", Sink: events}},
//	}
//
// # Deliver to people
//
// Package delivery reserves e-mails, calls and posts in the transaction that owes
// them, attempts each through one provider, and says of one whose answer was lost
// that it is in doubt, not that it failed.
//
// # Receive once
//
// Package inbox drops what a consumer has been sent before, in the transaction of
// its own effects.
//
// # Operate
//
// Package admin looks at an installation and acts on it: status, dead letters,
// redrives, topics, settings, the audit log. The program deed has all of it as
// commands. Package schema installs and upgrades what is in the database.
//
// # What is promised, and what is not
//
// A committed message is delivered to each subscription of its topic at least
// once, whatever crashes on the way, and one that did not commit never is. A
// message is held by one worker at a time, under a lease; a worker that lost its
// lease can no longer record anything. A dead letter is kept until an operator
// acts.
//
// Not promised is exactly-once at a destination that cannot drop repeats (a crash
// between a delivery and its record repeats it, under the same [Message.ID]), and
// order in a queue. docs/streams.md and docs/guarantees.md say more, with the tests
// that show it.
package deed
