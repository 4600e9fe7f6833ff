package file_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/file"
	"github.com/deedhq/deed/internal/pgtest"
)

const variants = spring + `variants:
  B: {subject: "Spring, {{ contact.name }}!"}
  A: {}
test: {share: 12.5%, wait: 4h, by: clicks}
`

// Variants are what they say, and else what the campaign does.
func TestParse_Variants(t *testing.T) {
	t.Parallel()
	f := read(t, variants)
	if len(f.Variants) != 2 || !reflect.DeepEqual(f.Request.Test, &campaign.Test{Share: 0.125, Wait: 4 * time.Hour, By: campaign.ByClicks}) {
		t.Fatalf("%+v %+v", f.Variants, f.Request.Test)
	}
	for i, c := range []campaign.Content{
		{Variant: "A", Subject: "{{ contact.name }}, spring is here", Text: string(texts["spring.txt"].Data)},
		{Variant: "B", Subject: "Spring, {{ contact.name }}!", Text: string(texts["spring.txt"].Data)},
	} {
		want(t, "variant "+c.Variant, f.Variants[i], c)
	}
	one, err := f.Of("B")
	if err != nil || one.Content.Variant != "B" {
		t.Errorf("%+v, %v", one, err)
	}
	for _, name := range []string{"", "C"} {
		if _, err := f.Of(name); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "which of its variants? It has A, B") {
			t.Errorf("%q: %v", name, err)
		}
	}
	_, err = file.Parse("spring.yaml", []byte(spring+`variants:
  A: {subject: "{{ contact.nmae }}", from: x@example.com}
test: {share: 100%, by: person, wait: 4h}
`), texts)
	for _, line := range []string{
		`spring.yaml:9: variants: there are two to ten of them`,
		`spring.yaml:10: subject: template_error: undefined name contact.nmae`,
		`spring.yaml:10: variants.A.from: unknown key`,
		`spring.yaml:11: test.share: "100%" is not such as 10%`,
		`spring.yaml:11: test: wait is how long clicks or complaints are waited for`,
	} {
		if err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%s is not said: %v", line, err)
		}
	}
}

// A campaign with variants is checked by each of them, and the same file to the same people is the same run.
func TestContract_C8_CheckLooksAtEachVariant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{}'`)
	f := read(t, strings.NewReplacer("A: {}", `A: {subject: "{{ contact.name | date: '%Y' }}"}`).Replace(variants))
	_, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, people)})
	for _, problem := range []string{"variant A: template_error: subject", "no_clicks: 'mail' does not report"} {
		if err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s is not said: %v", problem, err)
		}
	}
	db.Exec(t, pgtest.Owner, `update deed.providers set reports = '{clicked}'`)
	f = read(t, variants)
	if _, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, people)}); err != nil {
		t.Fatal(err)
	}
	var runs []string
	for range 2 {
		d, err := f.Deploy(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, people)})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, d.Run)
	}
	want(t, "the run of the same file", runs[1], runs[0])
	r, err := campaign.Find(t.Context(), db.Pool(pgtest.App), runs[0])
	if err != nil || !reflect.DeepEqual(r.Variants, []string{"A", "B"}) || !reflect.DeepEqual(r.Test, &campaign.TestOf{By: campaign.ByClicks, Share: 0.125, Wait: 4 * 3600}) {
		t.Errorf("%v %+v, %v", r.Variants, r.Test, err)
	}
}
