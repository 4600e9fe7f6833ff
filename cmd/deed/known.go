package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/tenant"
)

// A name that nothing has is a slip, and not a list without entries.

func knownTopic(ctx context.Context, c *admin.Client, topic string) error {
	if topic == "" {
		return nil
	}
	topics, err := c.Topics(ctx)
	if err != nil || slices.ContainsFunc(topics, func(t admin.DeclaredTopic) bool { return t.Topic == topic }) {
		return err
	}
	// One that nobody declared is there once something was published to it.
	page, err := c.Messages(ctx, admin.Filter{Topic: topic, Limit: 1})
	if err != nil || len(page.Items) > 0 || page.LookedTo != nil {
		return err
	}
	return fmt.Errorf("there is no topic %q: nobody declared it or published to it; deed topic list shows those that are declared", topic)
}

func knownProvider(ctx context.Context, l *delivery.Ledger, name string) error {
	if name == "" {
		return nil
	}
	list, err := l.Providers(ctx)
	if err != nil || slices.ContainsFunc(list, func(p delivery.ProviderState) bool { return p.Name == name }) {
		return err
	}
	return fmt.Errorf("there is no provider %q; deed providers list shows those that there are", name)
}

// knownTenant is for deliveries, whose tenants are registered; those of messages
// need not be.
func knownTenant(ctx context.Context, pool *pgxpool.Pool, id *tenant.ID) error {
	if id == nil {
		return nil
	}
	list, err := tenant.List(ctx, pool)
	if err != nil || slices.ContainsFunc(list, func(t tenant.Tenant) bool { return t.ID == *id }) {
		return err
	}
	return fmt.Errorf("there is no tenant %s; deed tenant list shows those that there are", id)
}
