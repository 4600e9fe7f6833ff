package upkeep

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

const (
	tenantBatch  = 5000 // rows that one step of a tenant's removal takes away
	tenantsEvery = 2 * time.Second
)

// RemoveTenants goes on with the removals of tenants until ctx ends. tell is told, every
// second or two, which tenants were removed within a week, before anything is taken away.
func (k *Keeper) RemoveTenants(ctx context.Context, tell func(removed []string)) {
	for pause := rand.N(tenantsEvery); work.Sleep(ctx, pause); pause = tenantsEvery/2 + rand.N(tenantsEvery) {
		var removed, open []string
		k.Chore(ctx, "look for tenants that are being removed", func(ctx context.Context) error {
			if err := k.Pool.QueryRow(ctx, query.RemovedTenants).Scan(&removed, &open); err != nil {
				return err
			}
			tell(removed)
			return nil
		})
		for _, id := range open {
			k.removeTenant(ctx, id)
		}
	}
}

// removeTenant takes steps until nothing of the tenant is left, or others are waited
// for.
func (k *Keeper) removeTenant(ctx context.Context, id string) {
	for state := "going"; state == "going" && ctx.Err() == nil; {
		state = "" // unless the step says so
		k.Chore(ctx, "take away what a removed tenant has", func(ctx context.Context) error {
			return pgx.BeginTxFunc(ctx, k.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				return tx.QueryRow(ctx, query.RemoveTenantStep, id, tenantBatch).Scan(&state)
			})
		})
		crash.Point("removing a tenant")
		if state == "done" {
			k.Logger.Info("a tenant is removed: nothing of it is left but its rows in the audit log", "tenant", id)
		}
	}
}
