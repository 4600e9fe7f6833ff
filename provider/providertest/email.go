package providertest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// copied gets a copy of e-mails.
const copied = "copy@example.net"

// emailContent has an e-mail with all that one may have accepted, a file that it names among it, and with the sandbox on
// without anybody who would get a copy.
func emailContent(t *testing.T, f *fixture) {
	if f.Channel != delivery.Email {
		return
	}
	var e delivery.EmailPayload
	if err := json.Unmarshal(f.Payload, &e); err != nil {
		t.Fatal(err)
	}
	pdf, picture := []byte("%PDF-1.7 of thirty bytes"), []byte("\x89PNG\r\n\x1a\n of what is shown")
	e.CC, e.ReplyTo = []string{copied, "second@example.net"}, "Shop <shop@example.com>, help@example.com"
	e.Text, e.HTML = "", `<p>canary-7f3a <img src="cid:logo@1" alt="Logo"></p>`
	named, err := delivery.PutContent(t.Context(), f.db.Pool(pgtest.App), nil, pdf, "application/pdf")
	if err != nil {
		t.Fatal(err)
	}
	e.Attachments = []delivery.Attachment{
		{Name: "Rechnung für Bob.pdf", SHA256: named},
		{Name: "logo.png", Type: "image/png", Content: picture, Inline: true, ContentID: "logo@1"},
		{Name: "data", Content: []byte("x")},
	}
	send := func(key string) delivery.Entry {
		t.Helper()
		ids := f.reserve(1, func(_ int, d *delivery.Delivery) { d.Payload, d.Key = e.JSON(), delivery.NewKey(t.Name(), key) })
		stop := f.start()
		defer stop()
		return f.ended(ids[0])
	}
	entry := send("real")
	if entry.SentAt == nil || len(f.Accepted()) != 1 {
		t.Fatalf("%s with %q, %d accepted", entry.Status, entry.LastError, len(f.Accepted()))
	}
	f.sentAsStored(entry)
	if got := f.Recipients(); !slices.Equal(got, []string{f.Recipient, copied, "second@example.net"}) {
		t.Errorf("it went to %q", got)
	}
	for _, want := range []string{copied, "shop@example.com", "help@example.com", "canary-7f3a Logo", "application/pdf", base64.StdEncoding.EncodeToString(pdf), base64.StdEncoding.EncodeToString(picture), "logo@1", "application/octet-stream"} {
		if !bytes.Contains(f.Accepted()[0], []byte(want)) {
			t.Errorf("what was accepted has no %s:\n%.3000s", want, f.Accepted()[0])
		}
	}
	f.serve(f.Sandbox)
	if entry := send("sandbox"); entry.Status != delivery.Skipped || !entry.Sandbox {
		t.Errorf("in the sandbox: %s with %q", entry.Status, entry.LastError)
	}
	if got := f.Recipients(); len(got) != 4 || got[3] != f.Sandbox || bytes.Contains(f.Accepted()[1], []byte(copied)) || !bytes.Contains(f.Accepted()[1], []byte(base64.StdEncoding.EncodeToString(pdf))) {
		t.Errorf("the sandbox's went to %q:\n%.3000s", got, f.Accepted()[1])
	}
}
