package catcher

import (
	"net/mail"
	"strings"
	"testing"
)

// The mailbox shows what a recipient reads, however it was written down.
func TestText_IsWhatIsRead(t *testing.T) {
	t.Parallel()
	alternative := "Content-Type: multipart/alternative; boundary=b\n\n" +
		"--b\nContent-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n<p>Gr=C3=B6=C3=9Fe</p>\n" +
		"--b\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nGr=C3=B6=C3=9Fe =\n42\n--b--\n"
	for message, want := range map[string]string{
		"Subject: x\n\nplain\n": "plain\n",
		"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\nGr=C3=B6=C3=9Fe =3D 4=\n2\n": "Größe = 42\n",
		"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\nR3LDtsOf\nZQ==\n":                                     "Größe",
		alternative: "Größe 42",
		strings.Replace(alternative, "text/plain", "text/calendar", 1):                                          "<p>Größe</p>",
		"Content-Type: multipart/mixed; boundary=a\n\n--a\n" + alternative + "\n--a--\n":                        "Größe 42",
		"Content-Transfer-Encoding: base64\n\n!\xff\n":                                                          "!\ufffd\n",
		"Content-Transfer-Encoding: x-none\n\nas it came\n":                                                     "as it came\n",
		"Content-Type: multipart/mixed\n\nno boundary\n":                                                        "",
		"Content-Type: multipart/mixed; boundary=a\n\n" + strings.Repeat("--a\nContent-Type: multipart\n\n", 5): "",
	} {
		m, err := mail.ReadMessage(strings.NewReader(strings.ReplaceAll(message, "\n", "\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(textOf(m.Header, m.Body), "\r\n", "\n"); got != want {
			t.Errorf("%q\ngot  %q\nwant %q", message, got, want)
		}
	}
}
