package smtp_test

import (
	"context"
	"log"
	"net"
	"net/netip"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/inbound/smtp"
)

// What people answer to help@example.com, behind a relay that checks DMARC.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // a login that holds deed_worker
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	receiver, err := inbound.New(ctx, pool, inbound.Options{Sources: map[string]inbound.SourceOptions{"help": {
		Executor: func(_ context.Context, m inbound.Message) (inbound.Result, error) {
			return inbound.Say("We have it."), nil
		},
		Reply:   inbound.ReplyBy{Provider: "mail", Channel: delivery.Email},
		PerHour: 10,
	}}})
	if err != nil {
		log.Fatal(err)
	}
	server, err := smtp.New(receiver, smtp.Options{
		Source: "help", Addresses: []string{"help@example.com"},
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Names: []string{"mx.example.com"},
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "10.0.0.5:2525")
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(receiver.Run(ctx)) }()
	log.Fatal(server.Serve(ctx, listener))
}
