package admin

import (
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/sqlfile"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A statement that does not fit the installed schema is found here, not by the
// operator who needs it.
func TestStatements_FitTheSchema(t *testing.T) {
	t.Parallel()
	if err := sqlfile.Check(t.Context(), pgtest.New(t).Conn(t, pgtest.Admin), query); err != nil {
		t.Fatal(err)
	}
}
