package postmark_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/provider/postmark"
)

// Files, copies and several addresses to answer to stand where Postmark's documentation has them;
// testdata names the source.
func TestRender_AttachmentsFixture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/send_attachments.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Source string          `json:"source"`
		Body   json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatal(err)
	}
	p, err := postmark.New(postmark.Options{ServerToken: token, From: "Acme <onboarding@resend.dev>"})
	if err != nil {
		t.Fatal(err)
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
	var want bytes.Buffer
	if err := json.Compact(&want, fixture.Body); err != nil {
		t.Fatal(err)
	}
	var escaped bytes.Buffer
	json.HTMLEscape(&escaped, want.Bytes())
	if diff := cmp.Diff(escaped.String(), string(got)); diff != "" {
		t.Error(diff)
	}
}
