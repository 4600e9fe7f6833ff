package main

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
)

// campaignOwner is --tenant of the commands about one run of a campaign: a run of another
// tenant is as if there were none.
type campaignOwner struct{ tenantFlag }

func (o *campaignOwner) add(cmd *cobra.Command) {
	o.tenantFlag.add(cmd, "only if it is this tenant's, a UUID")
}

// with runs do on the database, once it is known that the run is the tenant's.
func (o *campaignOwner) with(cmd *cobra.Command, a *app, run string, do func(*pgxpool.Pool) error) error {
	owner, err := o.id()
	if err != nil {
		return err
	}
	return a.withSchema(cmd.Context(), func(pool *pgxpool.Pool) error {
		if owner != nil {
			r, err := campaign.Find(cmd.Context(), pool, run)
			if err == nil && r.Tenant != *owner {
				err = &deed.Error{Op: "run of a campaign", Code: deed.NotFound, Err: fmt.Errorf("there is no run of a campaign %s of tenant %s", run, owner)}
			}
			if err != nil {
				return err
			}
		}
		return do(pool)
	})
}
