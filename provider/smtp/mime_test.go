package smtp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
)

// reader is a parser of mails that is not ours: Python's.
const reader = `
import base64, email, email.policy, json, sys
m = email.message_from_bytes(sys.stdin.buffer.read(), policy=email.policy.default)
def tell(part):
    if part.is_multipart():
        return {"type": part.get_content_type(), "parts": [tell(p) for p in part.iter_parts()]}
    content = part.get_content()
    if isinstance(content, bytes):
        content = base64.b64encode(content).decode()
    return {"type": part.get_content_type(), "name": part.get_filename(), "shown": part.get_content_disposition(), "id": part["Content-ID"], "content": content,
            "charset": part.get_content_charset(), "defects": [str(d) for d in part.defects]}
json.dump({"subject": m["Subject"], "cc": m["Cc"], "reply_to": m["Reply-To"], "unsubscribe": m["List-Unsubscribe"], "defects": [str(d) for d in m.defects], "body": tell(m)}, sys.stdout)
`

type read struct {
	Subject     string   `json:"subject"`
	CC          string   `json:"cc"`
	ReplyTo     string   `json:"reply_to"`
	Unsubscribe string   `json:"unsubscribe"`
	Defects     []string `json:"defects"`
	Body        part     `json:"body"`
}

type part struct {
	Type    string   `json:"type"`
	Parts   []part   `json:"parts"`
	Name    string   `json:"name"`
	Shown   string   `json:"shown"`
	ID      string   `json:"id"`
	Content string   `json:"content"`
	Charset string   `json:"charset"`
	Defects []string `json:"defects"`
}

// asRead is a message as Python reads it.
func asRead(t *testing.T, message []byte) (r read) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "python3", "-c", reader)
	cmd.Stdin = bytes.NewReader(message)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Whatever an e-mail has, another parser finds it as it was given: texts before HTML, files
// that are shown inline beside it, the others behind; and no line is longer than SMTP allows.
func TestRender_ReadByAnother(t *testing.T) {
	t.Parallel()
	long, binary := strings.Repeat("wörd ", 600), []byte{0, 1, 2, '\r', '\n', '.', '\r', '\n', 0xff, 0xfe}
	encoded := base64.StdEncoding.EncodeToString
	name := "Jahresabschluß „endgültig“ " + strings.Repeat("日本語", 30) + ".pdf"
	html := `<h1>Grüße</h1><p><img src="cid:logo@1" alt="Logo"> ` + long + `</p>`
	text := part{Type: "text/plain", Content: "Grüße\n\nLogo " + strings.TrimSpace(long), Charset: "utf-8", Defects: []string{}}
	rich := part{Type: "text/html", Content: html, Charset: "utf-8", Defects: []string{}}
	both := part{Type: "multipart/alternative", Parts: []part{text, rich}}
	logo := part{Type: "image/png", Name: "logo.png", Shown: "inline", ID: "<logo@1>", Content: encoded(binary), Defects: []string{}}
	file := part{Type: "application/pdf", Name: name, Shown: "attachment", Content: encoded(bytes.Repeat(binary, 50)), Defects: []string{}}
	table := part{Type: "text/csv", Name: `a "b"; c.csv`, Shown: "attachment", Content: "a;ü\n", Charset: "utf-8", Defects: []string{}}
	attached := map[string]delivery.Attachment{
		"logo":  {Name: logo.Name, Type: "image/png", Content: binary, Inline: true, ContentID: "logo@1"},
		"file":  {Name: name, Type: "application/pdf", Content: bytes.Repeat(binary, 50)},
		"table": {Name: table.Name, Type: "text/csv; charset=utf-8", Content: []byte(table.Content)},
	}
	related := part{Type: "multipart/related", Parts: []part{both, logo}}
	for what, c := range map[string]struct {
		e    delivery.EmailPayload
		want part
	}{
		"text made of html":  {delivery.EmailPayload{HTML: html}, both},
		"a file beside text": {delivery.EmailPayload{Text: text.Content, Attachments: []delivery.Attachment{attached["file"]}}, part{Type: "multipart/mixed", Parts: []part{text, file}}},
		"an image in html":   {delivery.EmailPayload{HTML: html, Attachments: []delivery.Attachment{attached["logo"]}}, related},
		"all of it": {
			delivery.EmailPayload{HTML: html, Attachments: []delivery.Attachment{attached["file"], attached["logo"], attached["table"]}},
			part{Type: "multipart/mixed", Parts: []part{related, file, table}},
		},
	} {
		c.e.Subject, c.e.CC, c.e.ReplyTo = "Grüße "+strings.Repeat("x", 200), []string{"copy@example.com", "other@example.org"}, "Söp <shop@example.com>, help@example.com"
		unsubscribe := "<https://example.com/u/" + strings.Repeat("A", 400) + ">"
		c.e.Headers = map[string]string{"List-Unsubscribe": unsubscribe}
		_, message, _ := bytes.Cut(render(t, c.e), []byte("\n"))
		for line := range strings.SplitSeq(string(message), "\r\n") {
			if len(line) > 998 || strings.ContainsAny(line, "\r\n") {
				t.Errorf("%s: a line has %d bytes, or another end: %.100q", what, len(line), line)
			}
		}
		got := asRead(t, message)
		got.Subject, got.Unsubscribe = strings.TrimSpace(got.Subject), strings.TrimSpace(got.Unsubscribe) // they may begin on the next line
		want := read{Subject: c.e.Subject, CC: "<copy@example.com>, <other@example.org>", ReplyTo: `Söp <shop@example.com>, help@example.com`, Unsubscribe: unsubscribe, Defects: []string{}, Body: c.want}
		got.CC, want.CC = strings.NewReplacer("<", "", ">", "").Replace(got.CC), "copy@example.com, other@example.org"
		var flat func(p *part)
		flat = func(p *part) {
			p.Content = strings.TrimSuffix(strings.ReplaceAll(p.Content, "\r\n", "\n"), "\n")
			for i := range p.Parts {
				flat(&p.Parts[i])
			}
		}
		flat(&got.Body)
		flat(&want.Body)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
}
