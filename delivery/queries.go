package delivery

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed queries.sql
var queriesText string

// query holds the statements of queries.sql by name; read-only.
var query = parseQueries(queriesText)

func parseQueries(text string) map[string]string {
	queries := map[string]string{}
	for _, part := range strings.Split(text, "-- name: ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		queries[strings.TrimSpace(name)] = strings.TrimSuffix(strings.TrimSpace(body), ";")
	}
	return queries
}

// checkQueries has the server parse every statement of queries.sql against
// the installed schema.
func checkQueries(ctx context.Context, conn *pgx.Conn) error {
	for name, text := range query {
		if _, err := conn.PgConn().Prepare(ctx, "", text, nil); err != nil {
			return fmt.Errorf("query %s does not fit the installed schema: %w", name, err)
		}
	}
	return nil
}
