package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// The walk of docs/unsubscribe.md does what it says, from deed dev on, with the files and the commands as they are printed but for
// the port and the folder of the data. Beyond it the link works when what was sent is purged, and a link of another tenant's, signed by
// the same secret, changes nothing.
func TestUnsubscribeWalk(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../docs/unsubscribe.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, _ := strings.Cut(string(raw), "## A walk\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	dir, public := t.TempDir(), freeAddress(t)
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil { // as root the server is another user
		t.Fatal(err)
	}
	walk = strings.ReplaceAll(walk, "127.0.0.1:8421", public)
	for _, m := range regexp.MustCompile("(?s)```[a-z]+\n# (\\S+)\n(.*?)```").FindAllStringSubmatch(walk, -1) {
		if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(m[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := steps(walk)
	if len(found) != 3 || len(found[0]) != 2 || len(found[1]) != 18 || len(found[2]) != 4 {
		t.Fatalf("the walk has the commands %q: go through it here, too", found)
	}
	secret := strings.TrimPrefix(found[0][0], "export ")
	catch := "DEED_CATCH_HTTP=" + freeAddress(t)
	dev := startWith(t, []string{catch, "DEED_DATA=" + filepath.Join(dir, "data"), "DEED_CONFIG=" + filepath.Join(dir, "deed.yaml"), secret}, "", strings.Fields(found[0][1])[1:]...)
	url := dev.prints(&dev.out, `export DEED_DATABASE_URL='([^']+)'\n`)
	dev.prints(&dev.errOut, `(listening for platforms)`)
	env := append(os.Environ(), catch, "PATH="+command(t)+":"+os.Getenv("PATH"), "DEED_DATA="+filepath.Join(dir, "data"), "DEED_DATABASE_URL="+url, secret)
	exports := "true"
	run := func(line, want string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "bash", "-euc", exports+"\n"+line)
		cmd.Dir, cmd.Env = dir, env
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil || !regexp.MustCompile(want).Match(out) {
			t.Fatalf("%s: %v\n%s%s\nwant %s", line, err, out, &said, want)
		}
		return string(out)
	}
	newest := ""
	follow := func(commands []string, wants ...string) {
		t.Helper()
		if len(commands) != len(wants) {
			t.Fatalf("the walk has the commands %q: go through it here, too", commands)
		}
		for i, line := range commands {
			if name, _, ok := strings.Cut(line, "="); ok && (name == "token" || name == "link") {
				exports += "\n" + name + "=" + strings.TrimSpace(run(line+"\necho $"+name, wants[i]))
				continue
			}
			out := run(strings.ReplaceAll(line, "RUN", newest), wants[i])
			if strings.Contains(out, ": deployed;") {
				newest = regexp.MustCompile(`[0-9a-f-]{36}`).FindString(out)
			}
		}
	}
	follow(found[1][2:], // the environment has the first two
		`: deployed; 2 members`, `List-Unsubscribe: <https://shop.example.com/u/(.|\n)*List-Unsubscribe-Post: List-Unsubscribe=One-Click`, `^/u/[A-Za-z0-9_-]{100,}\n$`, `/u/`,
		`^HTTP/1.1 200`, `<button>Unsubscribe</button>`, `^CHANNEL.*\n$`, `none of ours`, `^200$`, `no more e-mails of: newsletter`,
		`^CHANNEL.*\nemail +ann@example.com +newsletter .* link +consent revoked\n$`, `newsletter +revoked .*list-unsubscribe`, `(?m)^unsubscribed +1 +50.00%$`,
		`: deployed; 2 members`, `spring`, `(?m)^sent +1\n(.|\n)*^skipped +1 +suppressed: consent revoked`)
	follow(found[2], ``, `^CHANNEL.*\n$`, `: deployed; 2 members`, `(?m)^sent +2$`)

	// Beyond the page: once what was sent is purged, and as another tenant's.
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), `select deed.seal_run(r.id, '{}', 'test') from deed.campaign_runs r; select deed.purge_run(100, 'test') from generate_series(1, 9)`); err != nil {
		t.Fatal(err)
	}
	if n := pgtest.One[int](t, conn, `select count(*) from deed.channel_outbox`); n != 0 {
		t.Fatalf("%d deliveries are left", n)
	}
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://shop.example.com", Secret: strings.TrimPrefix(secret, "LINK_SECRET=")})
	if err != nil {
		t.Fatal(err)
	}
	other, err := tenant.Parse("01a1fe76-14ee-7f1b-b119-532699ab7d4c")
	if err == nil {
		err = tenant.Add(t.Context(), conn, other, "other")
	}
	if err != nil {
		t.Fatal(err)
	}
	bob := pgtest.One[string](t, conn, `select contact_id::text from deed.contact_identities where value = 'bob@example.com'`)
	linked := func(of contact.Leaving, until time.Duration) string { // where the relay listens
		return strings.Replace(links.Leave(of, time.Now().Add(until)), "https://shop.example.com", "http://"+public, 1)
	}
	of := contact.Leaving{Tenant: other.String(), Channel: "email", Purpose: "newsletter", Delivery: newest, Contact: bob}
	run("curl -s -X POST -d page=1 "+linked(of, time.Hour), `Nothing is known of you`)
	run("curl -s -X POST -d page=1 "+linked(of, -time.Hour), `time of this link is over`)
	run("deed suppressions list", `^CHANNEL.*\n$`)
	run("curl -s -X POST -d List-Unsubscribe=One-Click -w '%{http_code}' $link", `^200$`)
	run("deed suppressions list", `^CHANNEL.*\nemail +ann@example.com +newsletter .*\n$`)
}
