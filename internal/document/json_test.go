package document_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/document"
)

// A JSON document has the lines of its values, and what YAML does not know of JSON.
func TestReader_JSON(t *testing.T) {
	t.Parallel()
	r := &document.Reader{File: "x.json"}
	n := r.Parse([]byte("{\n\t\"a\": [1, 2.5,\n\t\t18446744073709551616],\n\t\"b\": {\"c\": \"\\ud83d\\ude00\\/\"},\n\t\"d\": null, \"e\": true\n}"), "", "")
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	a, _ := n.Entry("a")
	b, _ := n.Entry("b")
	c, _ := b.Value.Entry("c")
	d, _ := n.Entry("d")
	e, _ := n.Entry("e")
	if a.Line != 2 || len(a.Value.Items) != 3 || a.Value.Items[0].Number != int64(1) || a.Value.Items[2].Line != 3 || a.Value.Items[2].Kind != document.Float {
		t.Errorf("%+v", a.Value)
	}
	if b.Line != 4 || c.Value.Text != "😀/" || d.Line != 5 || d.Value.Kind != document.Null || e.Value.Text != "true" {
		t.Errorf("%+v %+v %+v", c.Value, d.Value, e.Value)
	}
}

func TestReader_ErrJSON(t *testing.T) {
	t.Parallel()
	r := &document.Reader{File: "x.json"}
	r.Parse([]byte("{\"a\": 1,\n\"a\": "+strings.Repeat("[", 200)+strings.Repeat("]", 200)+",\n\"a\": 2}"), "", "")
	want := "x.json:2: a: given twice; the first time in line 1\nx.json:2: a: values are nested more than 100 deep\nx.json:3: a: given twice; the first time in line 1"
	if got := r.Err(); got == nil || !strings.Contains(got.Error(), "nested more than 100 deep") || strings.Count(got.Error(), "given twice") != 2 || !strings.HasSuffix(got.Error(), want[strings.LastIndex(want, "\n"):]) {
		t.Error(got)
	}
}
