package upkeep

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/deedhq/deed/internal/crash"
	"github.com/deedhq/deed/internal/work"
)

const (
	eraseBatch = 5000 // deliveries that one step of an erasure looks at
	markBatch  = 5000 // rows of the audit log in which an address becomes a mark
	eraseEvery = 5 * time.Second
)

// Erase goes on with erasures until ctx ends (D12).
func (k *Keeper) Erase(ctx context.Context, worker string) {
	for pause := rand.N(eraseEvery); work.Sleep(ctx, pause); pause = eraseEvery/2 + rand.N(eraseEvery) {
		for n := int64(1); n > 0 && ctx.Err() == nil; {
			n = 0
			k.Chore(ctx, "erase the deliveries of contacts", func(ctx context.Context) error {
				return k.Pool.QueryRow(ctx, query.EraseStep, eraseBatch, worker).Scan(&n)
			})
			crash.Point("erasing")
		}
		for n := int64(markBatch); n == markBatch && ctx.Err() == nil; {
			n = 0
			k.Chore(ctx, "put marks where the audit log names addresses", func(ctx context.Context) error {
				return k.Pool.QueryRow(ctx, query.MarkAudit, markBatch).Scan(&n)
			})
		}
	}
}
