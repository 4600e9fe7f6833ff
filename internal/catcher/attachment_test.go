package catcher

import (
	"fmt"
	"testing"
)

// What each service is sent of attachments, the mailbox has.
func TestMailbox_HasAttachments(t *testing.T) {
	t.Parallel()
	for what, raw := range map[string]string{
		"postmark": `{"TextBody":"x","Attachments":[{"Name":"a.pdf","Content":"aGVsbG8=","ContentType":"application/pdf"}]}`,
		"resend":   `{"text":"x","attachments":[{"filename":"a.pdf","content":"aGVsbG8=","content_type":"application/pdf"}]}`,
		"sendgrid": `{"content":[{"type":"text/plain","value":"x"}],"attachments":[{"filename":"a.pdf","content":"aGVsbG8=","type":"application/pdf"}]}`,
		"ses":      `{"Content":{"Simple":{"Attachments":[{"FileName":"a.pdf","RawContent":"aGVsbG8=","ContentType":"application/pdf"}]}}}`,
		"smtp": "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nhi\r\n" +
			"--b\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Disposition: attachment; filename=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\naGVs\r\nbG8=\r\n--b--\r\n",
	} {
		var box Mailbox
		box.Add(Mail{Raw: []byte(raw)})
		if got := fmt.Sprint(box.List()[0].Attachments); got != "[{a.pdf application/pdf 5}]" {
			t.Errorf("%s: %s", what, got)
		}
	}
	var box Mailbox
	for _, raw := range []string{"", "{", `{"attachments":7}`, "Subject: x\r\n\r\nno attachment", `{"text":"x"}`} {
		box.Add(Mail{Raw: []byte(raw)})
	}
	for _, m := range box.List() {
		if m.Attachments != nil {
			t.Errorf("%q: %v", m.Raw, m.Attachments)
		}
	}
}
