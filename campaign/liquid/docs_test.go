package liquid_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/deedhq/deed/campaign/liquid"
)

// The examples of docs/templates.md give what the page says.
func TestDocs_ExamplesRun(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	data := decode(t, regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(page)[1])
	_, list, _ := strings.Cut(page, "and the names ")
	list, _, _ = strings.Cut(list, ":\n")
	var given []string
	for _, m := range regexp.MustCompile("`([a-z.]+)`").FindAllStringSubmatch(list, -1) {
		given = append(given, m[1])
	}
	examples := regexp.MustCompile("(?s)```liquid( html)?\n(.*?)```\n\n```text\n(.*?)```").FindAllStringSubmatch(page, -1)
	if all := strings.Count(page, "```liquid"); len(examples) != all || all < 6 {
		t.Fatalf("%d of %d examples have what they give", len(examples), all)
	}
	for _, m := range examples {
		kind := liquid.Text
		if m[1] != "" {
			kind = liquid.HTML
		}
		tmpl, err := liquid.Parse(kind, m[2], given)
		if err != nil {
			t.Errorf("%s%v", m[2], err)
			continue
		}
		got, err := tmpl.Render(context.Background(), data)
		if err != nil || got != m[3] {
			t.Errorf("%s\n got %q, %v\nwant %q", m[2], got, err, m[3])
		}
	}
}

// Every filter is on the page, and every directive of dates.
func TestDocs_NameEveryFilter(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/templates.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	_, err = liquid.Parse(liquid.Text, `{{ 1 | none }}`, nil)
	_, list, _ := strings.Cut(err.Error(), "there is ")
	for name := range strings.SplitSeq(list, ", ") {
		if !regexp.MustCompile("`" + name + "[`:]").MatchString(page) {
			t.Errorf("docs/templates.md lacks the filter %s", name)
		}
	}
	_, formats, _ := strings.Cut(page, "Formats have ")
	formats, _, _ = strings.Cut(formats, "; ")
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" {
		_, err := liquid.Parse(liquid.Text, `{{ 1 | date: "%`+string(c)+`" }}`, nil)
		if has := strings.Contains(formats, "%"+string(c)); has != (err == nil) && c != 'h' {
			t.Errorf("%%%c: the page says %t, dates %v", c, has, err)
		}
	}
}
