package campaign_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/campaign"
)

// A newsletter to two people: what is said, to whom, and the run, in one transaction.
func Example() {
	ctx := context.Background()
	deploy := func(tx pgx.Tx) error {
		c, err := campaign.Put(ctx, tx, campaign.Scope{}, "spring", campaign.Content{
			Subject: "{{ contact.name }}, spring is here", Text: "See https://shop.example\n\nNo more of this: {{ unsubscribe_url }}",
		})
		if err != nil {
			return err
		}
		people, err := campaign.OpenAudience(ctx, tx, campaign.Scope{}, "customers in spring", campaign.Email)
		if err != nil {
			return err
		}
		err = people.Add(ctx, tx,
			campaign.Member{Address: "ann@example.com", Data: json.RawMessage(`{"name": "Ann"}`)},
			campaign.Member{Address: "bob@example.com", Data: json.RawMessage(`{"name": "Bob"}`)})
		if err == nil {
			err = people.Finish(ctx, tx)
		}
		if err != nil {
			return err
		}
		run, err := campaign.Deploy(ctx, tx, campaign.Scope{}, campaign.Request{
			Campaign: c.ID, Audience: people.ID, ID: "spring 2026", Channel: campaign.Email,
			Provider: "mail", Purpose: "newsletter", From: "Shop <shop@example.com>",
		})
		if err == nil {
			fmt.Println("run", run.Run)
		}
		return err
	}
	_ = deploy // with pgx.BeginFunc
}
