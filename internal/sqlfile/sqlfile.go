// Package sqlfile reads the SQL statements that a package keeps in a file, by
// name.
package sqlfile

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
)

// Load reads text, in which each statement follows a line "-- name: its_name",
// into a T: a struct of strings, one for each statement, called ItsName. It
// panics if a field has no statement or a statement no field, so that a program
// with such a mistake does not start.
func Load[T any](text string) (statements T) {
	named := map[string]string{}
	for _, part := range strings.Split(text, "-- name: ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		named[strings.TrimSpace(name)] = strings.TrimSuffix(strings.TrimSpace(body), ";")
	}
	fields := reflect.ValueOf(&statements).Elem()
	for i := range fields.NumField() {
		name := nameOf(fields.Type().Field(i).Name)
		if named[name] == "" {
			panic(fmt.Sprintf("%T: there is no statement %s", statements, name))
		}
		fields.Field(i).SetString(named[name])
		delete(named, name)
	}
	for name := range named {
		panic(fmt.Sprintf("%T: there is no field for the statement %s", statements, name))
	}
	return statements
}

// nameOf turns ItsName into its_name.
func nameOf(field string) string {
	var name strings.Builder
	for i, r := range field {
		if unicode.IsUpper(r) && i > 0 {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return name.String()
}

// Check has the server parse every one of the statements, as [Load] returned
// them, against the schema that is installed.
func Check(ctx context.Context, conn *pgx.Conn, statements any) error {
	fields := reflect.ValueOf(statements)
	for i := range fields.NumField() {
		if _, err := conn.PgConn().Prepare(ctx, "", fields.Field(i).String(), nil); err != nil {
			return fmt.Errorf("query %s does not fit the installed schema: %w", nameOf(fields.Type().Field(i).Name), err)
		}
	}
	return nil
}
