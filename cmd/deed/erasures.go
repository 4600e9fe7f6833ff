package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/config"
	"github.com/deedhq/deed/internal/sqlstate"
	"github.com/deedhq/deed/internal/work"
	"github.com/deedhq/deed/tenant"
)

const (
	recordEvery    = 5 * time.Second
	recordDeadline = 30 * time.Second
	recordBatch    = 100
)

// erasureRecord is what is kept of an erasure outside the database: nobody's address.
type erasureRecord struct {
	N       int64     `json:"n,string"`
	Tenant  string    `json:"tenant"`
	Contact string    `json:"contact"`
	Names   []string  `json:"names"`
	Reason  string    `json:"reason"`
	Actor   string    `json:"actor"`
	At      time.Time `json:"at"`

	Suppress bool `json:"suppress,omitempty"`

	line int // of the file that it was read from
}

// recordErasures records erasures where the configuration says, until ctx ends; not
// while ready has an error, as in a copy of the installation that holds.
func (r *relay) recordErasures(ctx context.Context, pool *pgxpool.Pool, ready func(context.Context) error) {
	failed := false
	for pause := time.Duration(0); work.Sleep(ctx, pause); pause = recordEvery {
		for n := recordBatch; n == recordBatch && ready(ctx) == nil; {
			var err error
			n, err = recordOnce(ctx, pool, r.file.Erasures)
			if err != nil && ctx.Err() == nil && !failed {
				r.log.Error("erasures are not recorded; will try again", "error", sqlstate.WithHint(err))
			}
			if failed = err != nil; failed {
				break
			}
		}
	}
}

// recordOnce records some erasures, and returns how many. What is written and not
// committed as recorded is written again: repeating an erasure changes nothing.
func recordOnce(ctx context.Context, pool *pgxpool.Pool, to config.Erasures) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, recordDeadline)
	defer cancel()
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		list, err := contact.Export(ctx, tx, recordBatch, to.Topic == "")
		if n = len(list); err != nil || n == 0 {
			return err
		}
		if to.Topic != "" {
			return publishErasures(ctx, tx, to.Topic, list)
		}
		return writeErasures(ctx, to.File, list)
	})
	return n, err
}

func publishErasures(ctx context.Context, tx pgx.Tx, topic string, list []contact.Erasure) error {
	messages := make([]deed.Message, len(list))
	for i, e := range list {
		owner, err := tenant.Parse(e.Tenant)
		if err != nil {
			return err
		}
		messages[i] = deed.Message{Topic: topic, Key: e.Contact, Type: "contact.erased", Tenant: owner, Value: recordOf(e)}
	}
	_, err := deed.Publish(ctx, tx, messages...)
	return err
}

func recordOf(e contact.Erasure) erasureRecord {
	return erasureRecord{e.N, e.Tenant, e.Contact, e.Names, e.Reason, e.Actor, e.At, e.Suppressed, 0}
}
