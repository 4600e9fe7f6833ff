package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/admin"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/run"
	"github.com/deedhq/deed/run/plan"
	"github.com/deedhq/deed/tenant"
)

// A name that nothing has is a slip, and not a list without entries.

func knownTopic(ctx context.Context, c *admin.Client, topic string) error {
	if topic == "" {
		return nil
	}
	if _, err := c.Topic(ctx, topic); deed.CodeOf(err) != deed.NotFound {
		return err
	}
	// One that nobody declared is there once something was published to it.
	page, err := firstFound(ctx, c, admin.Filter{Topic: topic, Limit: 1})
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

// knownSource asks the messages that there are, and then deed.yaml: sources are registered
// nowhere.
func (a *app) knownSource(ctx context.Context, pool *pgxpool.Pool, name string) error {
	if name == "" || name == devSource || name == devWhatsAppSource.Name {
		return nil
	}
	list, err := inbound.List(ctx, pool, inbound.Filter{Source: name, Limit: 1})
	if err != nil || len(list.Items) > 0 {
		return err
	}
	file, err := a.config()
	if err != nil {
		return err
	}
	if _, ok := file.Sources[name]; ok {
		return nil
	}
	return fmt.Errorf("there is no source %q: no message has come from it, and the configuration has %s", name, namesOf(slices.Sorted(maps.Keys(file.Sources))))
}

// knownSubscription is of one topic, or of any.
func knownSubscription(ctx context.Context, c *admin.Client, topic, name string) error {
	if name == "" {
		return nil
	}
	has := func(t admin.DeclaredTopic) bool {
		return (topic == "" || t.Topic == topic) && slices.ContainsFunc(t.Subscriptions, func(s admin.DeclaredSubscription) bool { return s.Subscription == name })
	}
	for cursor := ""; ; {
		list, err := c.Topics(ctx, cursor, 1000)
		if err != nil || slices.ContainsFunc(list.Items, has) {
			return err
		}
		if cursor = list.Next; cursor == "" {
			break
		}
	}
	if topic != "" {
		return fmt.Errorf("the topic %q has no subscription %q; deed topic list shows those that it has", topic, name)
	}
	return fmt.Errorf("no topic has a subscription %q; deed topic list shows those that there are", name)
}

// knownPlan asks the runs that there are, whose plans need not be stored, and then the plans.
func knownPlan(ctx context.Context, pool *pgxpool.Pool, owner *tenant.ID, id string) error {
	if id == "" {
		return nil
	}
	runs, err := run.List(ctx, pool, run.Filter{Tenant: owner, Plan: id, Limit: 1})
	if err != nil || len(runs.Items) > 0 {
		return err
	}
	plans, err := plan.List(ctx, pool, plan.Filter{Tenant: owner, ID: id, Limit: 1})
	if err != nil || len(plans.Items) > 0 {
		return err
	}
	return fmt.Errorf("there is no plan %q, and no run of one; deed plan list shows those that there are", id)
}

func knownContact(ctx context.Context, db contact.DB, id string) error {
	if id == "" {
		return nil
	}
	_, err := contact.Get(ctx, db, id)
	return err
}

// knownCampaign asks the runs that there are.
func knownCampaign(ctx context.Context, pool *pgxpool.Pool, f campaign.Filter) error {
	if f.Campaign == "" {
		return nil
	}
	runs, err := campaign.List(ctx, pool, campaign.Filter{Tenant: f.Tenant, Campaign: f.Campaign, Limit: 1})
	if err != nil || len(runs.Items) > 0 {
		return err
	}
	return fmt.Errorf("no run is of a campaign %q; deed campaign list shows those that there are", f.Campaign)
}

// namesOf lists names, for who has typed another.
func namesOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// knownTenant is for deliveries, whose tenants are registered; those of messages
// need not be.
func knownTenant(ctx context.Context, db tenant.Querier, id *tenant.ID) error {
	if id == nil {
		return nil
	}
	if _, ok, err := tenant.Find(ctx, db, *id); err != nil || ok {
		return err
	}
	return fmt.Errorf("there is no tenant %s; deed tenant list shows those that there are", id)
}
