package delivery_test

import (
	"context"
	"os"
	"regexp"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// The SQL of docs/deliveries.md runs as it stands, for an application, and
// makes the delivery that Go would.
func TestDocs_SQLRuns(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/deliveries.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of SQL, want 1", len(blocks))
	}
	db := pgtest.New(t)
	db.Providers(t, "smtp", "mail")
	if _, err := db.Pool(pgtest.App).Exec(context.Background(), string(blocks[0][1])); err != nil {
		t.Fatal(err)
	}
	again := email("bob@example.org")
	again.Key = delivery.NewKey("order-shipped", "42")
	if r := reserve(t, db, again); !r[0].Duplicate {
		t.Error("Go's key of the same parts is another one")
	}
}
