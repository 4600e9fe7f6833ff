package sqlvalue_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/sqlvalue"
)

// What PostgreSQL does not take for a number is told of, however small it is; what it takes is not.
func TestJSONBProblem_DigitsBehindThePoint(t *testing.T) {
	t.Parallel()
	for number, bad := range map[string]bool{
		"0." + strings.Repeat("1", 16_383): false, "0." + strings.Repeat("1", 16_384): true, "0." + strings.Repeat("0", 17_000): true,
		"0." + strings.Repeat("1", 500) + "e-15999": true, "1e-15999": false, "0.5": false,
	} {
		if problem := sqlvalue.JSONBProblem([]byte(`{"n":`+number+`}`), 65_536); (problem != "") != bad {
			t.Errorf("%.20s… of %d bytes: %q", number, len(number), problem)
		}
	}
}
