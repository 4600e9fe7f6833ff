package pgtest

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Most buffers of a statement whose first run may cost anything, and of one of which the least of a few runs is asked for.
const (
	Any   = math.MaxInt
	Least = -1
)

// Cost is what a statement took.
type Cost struct {
	Buffers int // of shared memory, hit or read
	Rows    int
	WAL     int // bytes, without the images of whole pages
}

// Measure runs a statement and says what it took. Where that is more than most buffers it is undone and
// measured again, up to three times: a session reads the catalogue anew, and plans anew, after statistics were
// gathered, or after it has missed what became of others' databases; that is no cost of the statement.
func Measure(t testing.TB, conn *pgx.Conn, most int, sql string, args ...any) Cost {
	t.Helper()
	least := Any
	for again := 3; ; again-- {
		c := measure(t, conn, most, again == 0, sql, args...)
		if least = min(least, c.Buffers); c.Buffers <= most || again == 0 {
			c.Buffers = least
			return c
		}
	}
}

func measure(t testing.TB, conn *pgx.Conn, most int, last bool, sql string, args ...any) Cost {
	t.Helper()
	ctx := context.Background()
	begin, undo, keep := `begin`, `rollback`, `commit`
	if conn.PgConn().TxStatus() != 'I' {
		begin, undo, keep = `savepoint measured`, `rollback to savepoint measured`, `release savepoint measured`
	}
	do := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	do(begin)
	var text string
	if err := conn.QueryRow(ctx, `explain (analyze, buffers, wal, timing off, summary off, format json) `+sql, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var plans []struct {
		Plan struct {
			Hit    int     `json:"Shared Hit Blocks"`
			Read   int     `json:"Shared Read Blocks"`
			Rows   float64 `json:"Actual Rows"`
			WAL    int     `json:"WAL Bytes"`
			Images int     `json:"WAL FPI"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	p := plans[0].Plan
	c := Cost{Buffers: p.Hit + p.Read, Rows: int(p.Rows), WAL: max(0, p.WAL-8192*p.Images)}
	if c.Buffers > most && !last {
		do(undo)
	} else {
		do(keep)
	}
	return c
}
