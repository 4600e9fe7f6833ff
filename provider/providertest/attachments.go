package providertest

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/deedhq/deed/delivery"
)

// RunAttachments compares the request that an adapter makes of an e-mail with files, copies and
// several addresses to answer to with a fixture, {"source": …, "body": …}, which names where the
// service's documentation has them. The provider's From is Acme <onboarding@resend.dev>.
func RunAttachments(t *testing.T, p delivery.Provider, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Source string          `json:"source"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatalf("%s names no source, or cannot be read: %v", path, err)
	}
	e := delivery.EmailPayload{
		CC: []string{"copied@example.com"}, ReplyTo: "Shop <shop@example.com>, help@example.com", Subject: "Receipt for your payment",
		HTML: `<p>Thanks for the payment <img src="cid:logo-image" alt="Logo"></p>`,
		Attachments: []delivery.Attachment{
			{Name: "invoice.pdf", Type: "application/pdf", Content: []byte("test content")},
			{Name: "logo.png", Type: "image/png", Content: []byte("test content"), Inline: true, ContentID: "logo-image"},
		},
	}
	got, err := p.Render(delivery.Draft{ID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", Recipient: "delivered@resend.dev", Payload: e.JSON()})
	if err != nil {
		t.Fatal(err)
	}
	var want, escaped bytes.Buffer
	if err := json.Compact(&want, fixture.Body); err != nil {
		t.Fatal(err)
	}
	json.HTMLEscape(&escaped, want.Bytes())
	if !bytes.Equal(got, escaped.Bytes()) {
		t.Errorf("the request is\n%s\nwant\n%s", got, escaped.Bytes())
	}
}
