package main

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// A connection that is not made says in one line which database it was to be, why,
// and what to do; the URL's password is not in it.
func TestUnreachable_SaysWhatToDo(t *testing.T) {
	t.Parallel()
	real, err := url.Parse(pgtest.New(t).URL(pgtest.Admin))
	if err != nil {
		t.Fatal(err)
	}
	at := func(change func(u *url.URL)) string {
		u := *real
		change(&u)
		return u.String()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") // whom nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const closed = "127.0.0.1:1" // a port that nobody is given who asks for any
	for name, test := range map[string]struct{ database, want string }{
		"nobody there": {"postgres://ann:secret@" + closed + "/shop", `cannot connect to the database "shop" as "ann" at ` + closed + `: connection refused; is PostgreSQL running there?`},
		"no such host": {"postgres://ann:secret@nowhere.invalid/shop", `at nowhere.invalid:5432: there is no host "nowhere.invalid"; look at the name`},
		"two of them":  {"postgres://ann:secret@nowhere.invalid:1,else.invalid:2/shop?sslmode=disable", `at nowhere.invalid:1 or else.invalid:2: `},
		"no socket":    {"postgres:///shop?host=/nowhere&user=ann&password=secret", `at the socket in /nowhere, port 5432: there is no such socket; is PostgreSQL running here`},
		"no answer":    {"postgres://ann:secret@" + listener.Addr().String() + "/shop?connect_timeout=1&sslmode=disable", `: no answer in time; is a firewall between`},
		"no database":  {at(func(u *url.URL) { u.Path = "/nowhere" }), `the database "nowhere" as `},
		"no role":      {at(func(u *url.URL) { u.User = url.UserPassword("nobody", "secret") }), ` as "nobody" at `},
	} {
		var out, errs bytes.Buffer
		code := execute(context.Background(), []string{"status", "--database-url", test.database}, strings.NewReader(""), &out, &errs)
		text := errs.String()
		if code != exitFailed || out.Len() > 0 || strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "deed: cannot connect to ") || !strings.Contains(text, test.want) {
			t.Errorf("%s: exit %d\n got %s\nwant %s", name, code, text, test.want)
		}
		if strings.Contains(text, "secret") {
			t.Errorf("%s: the password is shown: %s", name, text)
		}
	}
}
