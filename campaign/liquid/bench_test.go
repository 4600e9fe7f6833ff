package liquid_test

import (
	"context"
	"strings"
	"testing"

	"github.com/deedhq/deed/campaign/liquid"
)

// mail is a newsletter of about so many bytes, with a greeting, a loop over what was
// bought, and a link of the recipient's own.
func mail(size int) string {
	const head = `<html><body><p>Hi {{ contact.name | default: "friend" }},</p>
{% if contact.n > 2 %}<p>you have {{ contact.n }} points in {{ contact.city }}.</p>{% endif %}
<table>{% for i in items %}<tr><td>{{ i.name }}</td><td>{{ i.price | number: 2 }}</td></tr>{% endfor %}</table>
<a href="{{ link }}">Unsubscribe</a>`
	const words = `<p>Spring is here, and with it what you have been waiting for.</p>` + "\n"
	n := max((size-len(head))/len(words), 0)
	return head + strings.Repeat(words, n) + `</body></html>`
}

func BenchmarkRender(b *testing.B) {
	for name, size := range map[string]int{"1KB": 1 << 10, "8KB": 8 << 10} {
		b.Run(name, func(b *testing.B) {
			tmpl := parse(b, liquid.HTML, mail(size))
			data := decode(b, ann)
			b.ReportAllocs()
			for b.Loop() {
				text, err := tmpl.Render(context.Background(), data)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(text)))
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	source := mail(8 << 10)
	b.SetBytes(int64(len(source)))
	for b.Loop() {
		parse(b, liquid.HTML, source)
	}
}
