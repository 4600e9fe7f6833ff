package importer_test

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/importer"
)

// work is how many bytes are allocated to read a file, among them a copy of all that is read.
func work(t *testing.T, text string, maxLine int) uint64 {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := importer.NewRows(strings.NewReader(text), "x.csv", importer.RowOptions{MaxLine: maxLine})
	if err != nil {
		t.Fatal(err)
	}
	for err != io.EOF {
		_, _, err = r.Next()
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Eight times the stray quotes are eight times the work, wherever in their lines they are.
func TestCSV_StrayQuotesAreReadInProportion(t *testing.T) { // not parallel: it counts what the process allocates
	for name, lines := range map[string]string{
		"that come before others":       "a\",\"b\n",
		"that open a row":               "\"a,b\n",
		"in the last field":             "a,\"b\n",
		"that what is behind them ends": "a,\"b\nc,d\ne,\"f\n",
		"behind what is closed":         "\"a\"b,\"c\"\n",
	} {
		few, many := work(t, "a,b\n"+strings.Repeat(lines, 1000), 0), work(t, "a,b\n"+strings.Repeat(lines, 8000), 0)
		if many > 12*few {
			t.Errorf("quotes %s: %d bytes for 1,000, %d for 8,000", name, few, many)
		}
	}
	const limit = 1000
	far := "\"stray,1\n" + strings.Repeat("1,2\n", limit/3)
	few, many := work(t, "a,b\n"+strings.Repeat(far, 10), limit), work(t, "a,b\n"+strings.Repeat(far, 80), limit)
	if many > 12*few {
		t.Errorf("quotes further apart than the limit: %d bytes for 10, %d for 80", few, many)
	}
}

// A quote that nothing closes within the limit takes none of the rows behind it, however long their lines are.
func TestCSV_AStrayQuoteTakesNoOtherRows(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("1,2\n", 30)
	for _, tt := range []struct {
		name, text string
		limit      int
		rows       int
		want       []string
	}{
		{"first", "a,b\n\"stray,1\n" + good, 40, 30, []string{
			"line 2: the row is over the limit of 40 bytes, or has a quote that nothing closes; what follows line 2 is read as rows",
		}},
		{"in a line over the limit", "a,b\n" + strings.Repeat("x", 50) + ",\"y\n" + good, 40, 30, []string{
			"line 2: the row is over the limit of 40 bytes, or has a quote that nothing closes; what follows line 2 is read as rows",
		}},
		{"in a line over the limit, of a few", "a,b\n" + strings.Repeat("x", 50) + ",\"y\n1,2\n3,4", 40, 2, []string{
			"line 2: the row is over the limit of 40 bytes, or has a quote that nothing closes; what follows line 2 is read as rows",
		}},
		{"before one that opens a row", "a,b\n\"stray,1\n1,2\n3,\"4\n5\"\n6,7\n", 40, 3, []string{
			"line 2: extraneous or missing \" in quoted-field",
		}},
		{"before a long line", "a,b\n\"stray,1\n" + strings.Repeat("x", 300_000) + ",2\n3,\n" + strings.Repeat("y", 300_000), 70_000, 1, []string{
			"line 2: the row is over the limit of 70000 bytes, or has a quote that nothing closes; what follows line 2 is read as rows",
			"line 3: the row is over the limit of 70000 bytes; it ends in line 3",
			"line 5: the row is over the limit of 70000 bytes; it ends in line 5",
		}},
		{"before a long line that is the last", "a,b\n\"stray,1\n" + strings.Repeat("x", 65_536), 40, 0, []string{
			"line 2: the row is over the limit of 40 bytes, or has a quote that nothing closes; what follows line 2 is read as rows",
			"line 3: the row is over the limit of 40 bytes; it ends in line 3",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := importer.NewRows(strings.NewReader(tt.text), "x.csv", importer.RowOptions{MaxLine: tt.limit})
			if err != nil {
				t.Fatal(err)
			}
			var rows int
			var bad []string
			for {
				_, _, err := r.Next()
				if err == io.EOF {
					break
				}
				if rows++; err != nil {
					rows, bad = rows-1, append(bad, err.Error())
				}
			}
			if diff := cmp.Diff(tt.want, bad); diff != "" || rows != tt.rows {
				t.Errorf("%d rows, want %d; errors (-want +got):\n%s", rows, tt.rows, diff)
			}
		})
	}
}
