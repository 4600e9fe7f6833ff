package file_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/deedhq/deed/campaign/file"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const spring = `campaign: spring
channel: email
provider: mail
purpose: newsletter
from: Shop <shop@example.com>
subject: "{{ contact.name }}, spring is here"
text: spring.txt
audience: {address: email, zone: tz, data: [name, city]}
`

var texts = fstest.MapFS{
	"spring.txt": {Data: []byte("Dear {{ contact.name }} in {{ contact.city }},\n{{ unsubscribe_url }}\n")},
	"sms.txt":    {Data: []byte("Spring is here, {{ contact.name }}")},
	"wrong.txt":  {Data: []byte("Dear\n{{ contact.nmae }},\n{% include 'x' %}\n")},
	"empty.txt":  {Data: []byte(" \n")},
}

// read is a campaign that is right.
func read(t testing.TB, text string) *file.File {
	t.Helper()
	f, err := file.Parse("spring.yaml", []byte(text), texts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// rows reads a CSV.
func rows(t testing.TB, f *file.File, csv string) *file.Source {
	t.Helper()
	s, err := f.Read(t.Context(), strings.NewReader(csv), "people.csv", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
