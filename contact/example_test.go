package contact_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
)

// Who signs up is a contact if and only if the account is made; who was known by the
// address before is the same one.
func ExampleUpsert() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into accounts (id, email) values ($1, $2)`, "acct_7", "Ann@Example.com"); err != nil {
			return err
		}
		list, err := contact.Upsert(ctx, tx, "sign-up", contact.Person{
			Identities: []contact.Identity{
				{Type: "external_id", Value: "acct_7"},
				{Type: "email", Value: "Ann@Example.com", Verified: true},
			},
			Data: json.RawMessage(`{"plan": "free"}`),
			Zone: "Europe/Berlin",
		})
		if err != nil {
			return err
		}
		fmt.Println(list[0].ID, list[0].Outcome)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Two contacts are one person, says somebody who has looked.
func ExampleMerge() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	list, err := contact.Conflicts(ctx, pool, contact.ConflictFilter{Limit: 1})
	if err != nil || len(list.Items) == 0 {
		log.Fatal("there is none: ", err)
	}
	pair := list.Items[0].Contacts
	act := audit.Act{By: "ann", Reason: "he said so on the phone"}
	if _, err := contact.Merge(ctx, pool, nil, pair[0], pair[1], act); err != nil {
		log.Fatal(err)
	}
}

// Somebody is asked, and comes back by the link that only their address was given.
func ExampleLinks() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://hooks.example.com", Secret: os.Getenv("LINK_SECRET")})
	if err != nil {
		log.Fatal(err)
	}
	asked := contact.Asked{Contact: "01a1fe76-14ee-7f1b-b119-532699ab7d4c", Channel: "email", Purpose: "newsletter"}
	word := contact.Word{Contact: asked.Contact, Channel: asked.Channel, Purpose: asked.Purpose, State: contact.Pending, Source: "sign-up"}
	if _, err := contact.SetConsents(ctx, pool, "web", word); err != nil {
		log.Fatal(err)
	}
	link := links.Confirm(asked, time.Now().Add(7*24*time.Hour)) // goes out by e-mail

	confirmed, err := links.Confirmed(link, time.Now()) // when somebody opens it
	if err != nil {
		log.Fatal(err)
	}
	if _, err := contact.ConfirmConsent(ctx, pool, nil, "web", confirmed, nil); err != nil {
		log.Fatal(err)
	}
}
