package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// counted takes money.
type counted struct{ calls atomic.Int32 }

func (c *counted) Charge(_ context.Context, o order, _ string) (string, error) {
	c.calls.Add(1)
	return "tx-" + o.ID, nil
}

// The process that has charged an order ends while the order cools off, and the next one ships it without charging again.
func TestFunctions(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, err := pgxpool.New(t.Context(), strings.Replace(db.URL(pgtest.Team), "options=-c%20search_path%3D", "search_path=public", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db.Exec(t, pgtest.Owner, `create table public.shop_orders (id text primary key, cents bigint not null, shipped_at timestamptz); grant all on public.shop_orders to public`)
	money := &counted{}
	for _, until := range []string{
		// On a machine that is busy with other things it may have been shipped by then.
		`select exists (select from deed.run_steps where parked) or exists (select from deed.runs where status = 'COMPLETED')`,
		`select exists (select from deed.runs where status = 'COMPLETED')`,
	} {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- serve(ctx, &shop{pool: pool, psp: money, coolOff: 5 * time.Second}, order{ID: "7", Cents: 1250})
		}()
		if !pgtest.Wait(pgtest.Patience, func() bool { return pgtest.One[bool](t, db.Pool(pgtest.Owner), until) }) {
			t.Error("waited in vain for: " + until)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	if n := money.calls.Load(); n != 1 {
		t.Errorf("charged %d times", n)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.shop_orders where shipped_at is not null`); n != 1 {
		t.Errorf("%d orders were shipped", n)
	}
}

// docs/functions.md shows this program, not another.
func TestFunctionsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(text string) string { return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(text, "") }
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 3 {
		t.Errorf("the page has %d blocks of Go", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(squeeze(string(program)), squeeze(b[1])) {
			t.Errorf("the program does not have what the page shows:\n%s", b[1])
		}
	}
}
