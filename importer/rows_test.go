package importer_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/importer"
)

// Rows are objects; what cannot be one has its line, and those after it are read.
func TestRows(t *testing.T) {
	t.Parallel()
	r, err := importer.NewRows(strings.NewReader("a,b\n1,x\n2\n\"3\n\",y\n"), "x.csv", importer.RowOptions{Fields: []string{"b"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(r.Fields(), " "); got != "a b" {
		t.Errorf("fields %s", got)
	}
	for _, want := range []struct {
		object string
		line   int
	}{{`{"a":"1","b":"x"}`, 2}, {"", 3}, {`{"a":"3\n","b":"y"}`, 4}} {
		object, line, err := r.Next()
		if string(object) != want.object || line != want.line || (err != nil) != (want.object == "") {
			t.Errorf("%s %d %v, want %s of line %d", object, line, err, want.object, want.line)
		}
	}
	for range 2 {
		if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
	if _, err := importer.NewRows(strings.NewReader("a,a\n"), "x.csv", importer.RowOptions{Fields: []string{"b", "b", "c"}}); deed.CodeOf(err) != deed.Invalid ||
		strings.Count(err.Error(), `"b"`) != 1 || !strings.Contains(err.Error(), `no field is called "c"`) || !strings.Contains(err.Error(), `field 2 is called "a"`) {
		t.Error(err)
	}
	n, err := importer.NewRows(strings.NewReader("{\"a\": 1}\nx\n"), "-", importer.RowOptions{Format: "ndjson", Fields: []string{"b"}})
	if err != nil {
		t.Fatal(err)
	}
	if object, _, err := n.Next(); err != nil || string(object) != `{"a": 1}` || n.Fields() != nil {
		t.Errorf("%s %v", object, err)
	}
	if _, line, err := n.Next(); line != 2 || err == nil {
		t.Errorf("line %d: %v", line, err)
	}
}
