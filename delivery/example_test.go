package delivery_test

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
)

// An e-mail that is owed if and only if the order is shipped, and once however
// often this runs.
func ExampleReserve() {
	ship := func(ctx context.Context, pool *pgxpool.Pool, orderID, address string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `update orders set shipped_at = now() where id = $1`, orderID); err != nil {
				return err
			}
			_, err := delivery.Reserve(ctx, tx, delivery.Delivery{
				Channel: delivery.Email, Provider: "mail", Recipient: address,
				Payload: delivery.EmailPayload{Subject: "Your order", Text: "It is on its way."}.JSON(),
				Key:     delivery.NewKey("order-shipped", orderID),
			})
			return err
		})
	}
	_ = ship
}
