package liquid_test

import (
	"context"
	"fmt"
	"log"

	"github.com/deedhq/deed/campaign/liquid"
)

// A template is checked once and rendered for each recipient.
func ExampleParse() {
	tmpl, err := liquid.Parse(liquid.HTML, `<p>Hi {{ contact.name }}, spring is here in {{ contact.city | default: "your town" }}.</p>`,
		[]string{"contact.name", "contact.city"})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"Ann", "Tom & <Jerry>"} {
		text, err := tmpl.Render(context.Background(), map[string]any{"contact": map[string]any{"name": name}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(text)
	}
	// Output:
	// <p>Hi Ann, spring is here in your town.</p>
	// <p>Hi Tom &amp; &lt;Jerry&gt;, spring is here in your town.</p>
}

// What is wrong with a template is said whole.
func ExampleParse_problems() {
	_, err := liquid.Parse(liquid.HTML, "<p>{{ contact.nmae }}</p>\n<a href={{ link }}>here</a>\n{% if link %}", []string{"contact.name", "link"})
	fmt.Println(err)
	// Output:
	// line 1: undefined name contact.nmae: there is contact.name, link
	// line 2: {{ }} in an attribute without quotes: write href="{{ … }}"
	// line 3: if is not closed: endif is missing
}
