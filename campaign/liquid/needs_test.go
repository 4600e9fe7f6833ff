package liquid_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/campaign/liquid"
)

// What a template needs of everybody is what it writes and does not provide for.
func TestTemplate_Needs(t *testing.T) {
	t.Parallel()
	for source, needs := range map[string]string{
		`{{ contact.name }} {{ contact.city | upcase }} {{ contact.name }}`:      "contact.city contact.name",
		`{{ contact.name | default: "you" }}`:                                    "",
		`{{ contact.name }} and {{ contact.name | default: "you" }}`:             "",
		`{% if contact.city %}in {{ contact.city }}{% endif %} {{ contact.n }}`:  "contact.n",
		`{% for tag in contact.tags %}{{ tag }} {{ forloop.index }}{% endfor %}`: "",
		`{% assign x = contact.name %}{{ x }}{{ contact["address"].street }}`:    "contact.address.street",
		`nothing`: "",
	} {
		tpl, err := liquid.Parse(liquid.Text, source, names)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(tpl.Needs(), " "); got != needs {
			t.Errorf("%s needs %q, want %q", source, got, needs)
		}
	}
}
