package admin

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// A number that the SQL functions have no room for is refused by its name, and
// not by the driver.
func TestBounds_NumbersAreNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c, err := New(ctx, pgtest.New(t).Pool(pgtest.Admin), Options{})
	if err != nil {
		t.Fatal(err)
	}
	const most = math.MaxInt32 + 1
	for name, call := range map[string]func() error{
		"redrive: limit":      func() error { _, err := c.Redrive(ctx, Redrive{DeadFilter: DeadFilter{Limit: most}}); return err },
		"redrive: rate":       func() error { _, err := c.Redrive(ctx, Redrive{Rate: most}); return err },
		"dead: limit":         func() error { _, err := c.Dead(ctx, DeadFilter{Limit: most}); return err },
		"redrives: limit":     func() error { _, err := c.Redrives(ctx, "", most); return err },
		"removals: limit":     func() error { _, err := c.Removals(ctx, "", most); return err },
		"blocked keys: limit": func() error { _, err := c.BlockedKeys(ctx, BlockedFilter{Limit: most}); return err },
		"audit: limit":        func() error { _, err := c.Audit(ctx, AuditFilter{Limit: most}); return err },
		"status: most":        func() error { _, err := c.StatusOf(ctx, most); return err },
	} {
		if err := call(); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), name+" 2147483648 is not from ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.Messages(ctx, Filter{Cursor: "-1"}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("before -1: %v", err)
	}
}
