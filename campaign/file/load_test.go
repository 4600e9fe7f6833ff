package file_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/file"
	"github.com/deedhq/deed/internal/pgtest"
)

const people = `email,name,city,tz,other
ann@example.com,Ann,Lyon,Europe/Paris,1
bob@example.com,Bob,,,2
`

const audiences = `select coalesce(string_agg(concat_ws(' ', a.status, a.members, a.rows_read, a.left_out), ', '), 'none') from deed.audiences a`

// The rows of a file are members, with what the campaign takes of them; the same rows again are the same audience.
func TestLoad(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := read(t, spring)
	var first string
	for range 2 {
		got, err := rows(t, f, people).Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, file.LoadOptions{})
		if err != nil || !got.Ready || got.Members != 2 || got.LeftOut != 0 || first != "" && first != got.Audience {
			t.Fatalf("%+v %v", got, err)
		}
		first = got.Audience
	}
	want(t, "audiences", pgtest.One[string](t, db.Pool(pgtest.Owner), audiences), "ready 2 2 0")
	want(t, "members", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(concat_ws(' ', n, address, zone, data), '; ' order by n) from deed.audience_members`),
		`1 ann@example.com Europe/Paris {"city": "Lyon", "name": "Ann"}; 2 bob@example.com {"city": "", "name": "Bob"}`)
}

const bad = `email,name,city,tz
ann@example.com,Ann,Lyon,
not an address,Bob,Lyon,
cid@example.com,Cid,"Ly"on,
dan@example.com,Dan,Lyon,Mars/Olympus
ANN@example.com,Ann again,Lyon,
eve@example.com,Eve,Lyon,Europe/Paris
fay@example.com,Fay
`

// Bad lines are all named, and nobody is written to; only on demand the others are an audience.
func TestLoad_BadLines(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := read(t, spring)
	for _, batch := range []int{1, 3, 1000} {
		t.Run(fmt.Sprint(batch), func(t *testing.T) {
			db.Exec(t, pgtest.Owner, `select 1`)
			text := bad + fmt.Sprintf("x%d@example.com,X,Y,\n", batch) // an audience of its own
			var named []string
			opts := file.LoadOptions{Batch: batch, Rejected: func(line int, why string) { named = append(named, fmt.Sprintf("%d: %s", line, why)) }}
			got, err := rows(t, f, text).Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, opts)
			if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "5 of 8 rows are bad") || got.Ready || got.LeftOut != 5 {
				t.Errorf("%+v %v", got, err)
			}
			lines := strings.Join(named, "\n")
			for i, why := range []string{"3: its address is none", `4: extraneous or missing " in quoted-field`, "5: its zone is not the name of a time zone", "6: has the contact of member 1", "8: 2 fields, but the header has 4"} {
				if i >= len(named) || !strings.HasPrefix(named[i], why) {
					t.Errorf("%s is not in its place:\n%s", why, lines)
				}
			}
			if pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.audiences where status = 'ready')`) && batch == 1 {
				t.Error("there is an audience, of bad lines")
			}
			got, err = rows(t, f, text).Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, file.LoadOptions{LeaveOut: true})
			if err != nil || !got.Ready || got.Members != 3 || got.LeftOut != 5 {
				t.Errorf("the others: %+v %v", got, err)
			}
		})
	}
}

// Rows that were left out once are so only for who says so, whenever: everybody else is told of them, with their lines.
func TestLoad_LeftOutForWhoSaysSo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	f := read(t, spring)
	other := read(t, strings.Replace(spring, "spring is here", "it is spring", 1))
	deploy := func(f *file.File, text string, leaveOut bool) (file.Deployed, error) {
		t.Helper()
		opts := file.Options{Source: rows(t, f, text), IgnoreBad: leaveOut, Sample: 1, Load: file.LoadOptions{LeaveOut: leaveOut, Batch: 2}}
		_, checked := f.Check(t.Context(), db.Pool(pgtest.App), opts)
		d, err := f.Deploy(t.Context(), db.Pool(pgtest.App), opts)
		if (checked == nil) != (err == nil) {
			t.Errorf("a check says %v, and a deployment %v", checked, err)
		}
		return d, errors.Join(checked, err)
	}
	named := func(what string, err error, of string) {
		t.Helper()
		for _, why := range []string{"people.csv:3: its address is none", "people.csv:4: extraneous or missing", "people.csv:5: its zone is not", "people.csv:6: has the contact of member 1", "people.csv:8: 2 fields", "5 of " + of + " rows are bad"} {
			if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), why) {
				t.Errorf("%s: %v, want %s", what, err, why)
			}
		}
	}
	first, err := deploy(f, bad, true)
	if err != nil || !first.New || first.Loaded.LeftOut != 5 {
		t.Fatalf("%+v %v", first, err)
	}
	_, err = deploy(other, bad, false)
	named("another campaign to the same rows", err, "7")
	_, err = deploy(f, bad, false)
	named("the same without saying so", err, "7")
	if again, err := deploy(f, bad, true); err != nil || again.New || again.Run != first.Run {
		t.Errorf("the same: %+v %v, want run %s", again, err, first.Run)
	}
	text := bad + "gus@example.com,Gus,Lyon,\n"
	if _, err = f.Deploy(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, text)}); deed.CodeOf(err) != deed.Invalid {
		t.Errorf("a load that is refused: %v", err)
	}
	_, err = deploy(f, text, false)
	named("a load that was refused", err, "8")
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.campaign_runs`), 1)
}

// A line that PostgreSQL cannot hold, or whose contact is no id, is as bad as any other, and stands in nobody's way.
func TestLoad_WhatCannotBeHeld(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	f := read(t, strings.Replace(spring, "address: email,", "address: email, contact: who,", 1))
	ann := pgtest.One[string](t, db.Pool(pgtest.App), `select id::text from deed.upsert_contacts('{1}', '{email}', '{ann@example.com}', array['{}'::jsonb])`)
	text := "email,who,name,city,tz\n" +
		"ann@example.com," + ann + ",Ann,Lyon,\n" +
		"bob@example.com,,B\x00b,Lyon,\n" +
		"cid@example.com,cid@example.com,Cid,Lyon,\n" +
		"d\x00n@example.com,,Dan,Lyon,\n" +
		"eve@example.com,,Eve,Lyon,Europe/\x00\n" +
		"fay@example.com,,Fay,Lyon,\n"
	bad := []string{`3: its data have the escape \u0000`, "4: a contact's id must be a UUID", "5: its address is none", "6: its zone is not the name of a time zone"}
	_, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, text)})
	for _, why := range bad {
		if err == nil || !strings.Contains(err.Error(), "people.csv:"+why) {
			t.Errorf("checked: %v, want %s", err, why)
		}
	}
	var named []string
	opts := file.LoadOptions{Rejected: func(line int, why string) { named = append(named, fmt.Sprintf("%d: %s", line, why)) }}
	got, err := rows(t, f, text).Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, opts)
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "4 of 6 rows are bad") || got.Ready {
		t.Errorf("%+v %v", got, err)
	}
	for i, why := range bad {
		if i >= len(named) || !strings.HasPrefix(named[i], why) {
			t.Errorf("%s is not in its place: %q", why, named)
		}
	}
	got, err = rows(t, f, text).Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, file.LoadOptions{LeaveOut: true})
	if err != nil || !got.Ready || got.Members != 2 || got.LeftOut != 4 {
		t.Errorf("the others: %+v %v", got, err)
	}
}

// A number without its country's code is a bad row like any other, unless the row says whose it is.
func TestLoad_NumbersWithoutACountry(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := pgtest.One[string](t, db.Pool(pgtest.App), `select id::text from deed.upsert_contacts('{1}', '{email}', '{ann@example.com}', array['{}'::jsonb])`)
	for _, channel := range []campaign.Channel{campaign.SMS, campaign.Voice} {
		f := read(t, "campaign: spring\nchannel: "+string(channel)+"\naudience: {contact: who}\n"+map[campaign.Channel]string{campaign.SMS: "text: sms.txt\n", campaign.Voice: "script: sms.txt\n"}[channel])
		text := "phone,who,name\n+493012345678,,Ann\n0171 1234567,,Bob\n493012345679,,Cid\n+4930,,Dan\n0171 1234567," + ann + ",Eve\n+49 30 12345670,,Fay\n"
		const why = "its address is none: it is not a number in E.164"
		_, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, text)})
		for _, line := range []string{"people.csv:3: ", "people.csv:4: ", "people.csv:5: "} {
			if err == nil || !strings.Contains(err.Error(), line+why) {
				t.Errorf("%s is checked: %v, want %s", channel, err, line+why)
			}
		}
		var named []string
		got, err := rows(t, f, text).Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, channel, file.LoadOptions{LeaveOut: true, Rejected: func(line int, why string) {
			named = append(named, fmt.Sprintf("%d: %s", line, why))
		}})
		if err != nil || !got.Ready || got.Members != 3 || got.LeftOut != 3 || len(named) != 3 || !strings.HasPrefix(named[0], "3: "+why) {
			t.Errorf("%s: %+v %v, named %q", channel, got, err, named)
		}
	}
}

// A contact that is gone ends the load, as what is read no longer goes with what there is. Its line is named.
func TestLoad_AContactIsGone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := read(t, strings.Replace(spring, "address: email,", "address: email, contact: who,", 1))
	const nobody = "00000000-0000-4000-8000-000000000001"
	erased := pgtest.One[string](t, db.Pool(pgtest.App), `select id::text from deed.upsert_contacts('{1}', '{email}', '{eve@example.com}', array['{}'::jsonb])`)
	db.Exec(t, pgtest.Admin, `select deed.erase_contact($1::text::uuid, 'asked to', 'ann')`, erased)
	for id, w := range map[string]struct {
		code deed.Code
		why  string
	}{
		nobody: {deed.NotFound, "line 4: deed: add audience members: member 2: there is no contact " + nobody},
		erased: {deed.Conflict, "line 4: deed: add audience members: member 2: contact " + erased + " has been erased"},
	} {
		text := "email,who,name,city,tz\nann@example.com,,Ann,Lyon,\nnot an address,,Bob,Lyon,\n," + id + ",Eve,Lyon,\n"
		got, err := rows(t, f, text).Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, file.LoadOptions{LeaveOut: true})
		if deed.CodeOf(err) != w.code || !strings.Contains(fmt.Sprint(err), w.why) || got.Ready || got.Members != 0 {
			t.Errorf("%+v %v, want %s", got, err, w.why)
		}
		// Of what is left out a check says nothing; this ends the load.
		_, err = f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, text), IgnoreBad: true})
		if why := w.why[strings.Index(w.why, "contact "):]; err == nil || !strings.Contains(err.Error(), ":4: ") || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "not an address") {
			t.Errorf("a check says %v, want %s in line 4", err, why)
		}
	}
}

// cut is a database that goes away after some statements; those before are done.
type cut struct {
	deed.DB
	left int
}

var errCut = errors.New("the connection is gone")

func (c *cut) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if c.left--; c.left < 0 {
		return nil, errCut
	}
	return c.DB.Query(ctx, sql, args...)
}

// A load that is interrupted at any statement is never half an audience, and the same again has everybody once.
func TestLoad_Interrupted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := read(t, spring)
	var text strings.Builder
	text.WriteString("email,name,city,tz\n")
	for i := range 25 {
		fmt.Fprintf(&text, "p%d@example.com,P,L,\n", i)
		if i%5 == 2 {
			text.WriteString("no address,P,L,\n")
		}
	}
	opts := file.LoadOptions{Batch: 4, LeaveOut: true}
	for left := 0; ; left++ {
		if left == 100 { // seven batches and the end, of up to two statements each time
			t.Fatal("it does not get on")
		}
		got, err := rows(t, f, text.String()).Load(t.Context(), &cut{db.Pool(pgtest.App), left % 4}, campaign.Scope{}, campaign.Email, opts)
		if err == nil {
			want(t, "what was loaded", fmt.Sprint(got.Members, got.LeftOut, got.Ready), "25 5 true")
			break
		}
		if !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		if pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.audiences where status = 'ready')`) {
			t.Fatalf("ready after %v", err)
		}
	}
	want(t, "audiences", pgtest.One[string](t, db.Pool(pgtest.Owner), audiences), "ready 25 30 5")
	want(t, "addresses", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(distinct address)::int from deed.audience_members`), 25)
}

// A query's rows are members, whatever their types; what may write is refused.
func TestQuery(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := read(t, spring)
	conn := db.Conn(t, pgtest.Owner)
	s, err := f.Query(t.Context(), conn, "people.sql", `select 'p' || n || '@example.com' as email, n as name, now() as city, null as tz from generate_series(1, 3) n; -- all`)
	if err == nil || !strings.Contains(err.Error(), "syntax error") {
		t.Errorf("a comment behind the semicolon: %v", err)
	}
	if s, err = f.Query(t.Context(), conn, "people.sql", "select 'p' || n || '@example.com' as email, n as name, now() as city, null as tz from generate_series(1, 3) n -- all\n ;\n"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	got, err := s.Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, file.LoadOptions{})
	if err != nil || got.Members != 3 {
		t.Errorf("%+v %v", got, err)
	}
	want(t, "the names", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(data ->> 'name', ' ' order by n) from deed.audience_members`), "1 2 3")
	if s, err = f.Query(t.Context(), conn, "people.sql", "select 'p' || n || '@example.com' as email, null as name, null as city, null as tz from generate_series(1, 3) n ORDER\nBY n desc"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if m, err := s.Member(1); err != nil || m.Address != "p3@example.com" {
		t.Errorf("the first of a query that says its order: %+v %v", m, err)
	}
	db.Exec(t, pgtest.Owner, `create table deed.mine (n int); create function deed.writes() returns int language sql as 'insert into deed.mine values (1) returning n'`)
	for sql, problem := range map[string]string{
		`delete from deed.contacts returning 1`:                                 "syntax error",
		`select deed.writes() as email, null as name, null as city, null as tz`: "read-only",
		`select 1; select 2`:    "syntax error",
		`select * from nowhere`: `relation "nowhere" does not exist`,
		`select 'a@b.example' as email, 1 / (n - 2) as name, null as city, null as tz from generate_series(1, 3) n`: "division by zero",
	} {
		if _, err := f.Query(t.Context(), conn, "people.sql", sql); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v, want %s", sql, err, problem)
		}
	}
	db.Exec(t, pgtest.Owner, `drop function deed.writes(); drop table deed.mine`)
}

// The columns of a query are looked at as those of a CSV file: each that is asked for must be there, and once.
func TestQuery_Columns(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	conn := db.Conn(t, pgtest.Owner)
	const one = `select 'ann@example.com' as email, 'Ann' as name, 'Lyon' as city, 'Europe/Paris' as tz`
	byContact := strings.Replace(spring, "address: email,", "contact: who,", 1)
	for _, c := range []struct{ file, sql, problem string }{
		{spring, one, ""},
		{spring, `select q.*, 'eve@example.com' as email from (` + one + `) q`, `column 5 is called "email", as column 1 is`},
		{spring, `select 1 as id, q.*, 2 as id from (` + one + `) q`, ""}, // of a join, and taken by nobody
		{spring, `select email, name, city, tz as timezone from (` + one + `) q`, `no column is called "tz"`},
		{spring, `select email as mail, name, city, tz from (` + one + `) q`, `no column is called "email"`},
		{spring, `select email, name, tz from (` + one + `) q -- no city`, `no column is called "city"`},
		{spring, `select email, city as town from (` + one + `) q where false`, `no column is called "name"`},
		{byContact, one, `no column is called "who"`},
		{byContact, `select null as who, name, city, tz from (` + one + `) q;`, ""},
	} {
		s, err := read(t, c.file).Query(t.Context(), conn, "people.sql", c.sql)
		if s != nil {
			_ = s.Close()
		}
		if (err == nil) != (c.problem == "") || err != nil && (deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), c.problem)) {
			t.Errorf("%s: %v, want %q", c.sql, err, c.problem)
		}
	}
	f := read(t, strings.Replace(spring, ", data: [name, city]", "", 1))
	for city, problem := range map[string]string{"city": "", "town": "undefined name contact.city: there is contact.name, contact.town, unsubscribe_url"} {
		s, err := f.Query(t.Context(), conn, "people.sql", `select email, name, tz, city as `+city+` from (`+one+`) q`)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: s})
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("without a list of data, and with %s: %v, want %q", city, err, problem)
		}
		_ = s.Close()
	}
}

// A query is read by its letters, whatever the encoding of its database.
func TestQuery_OfAnotherEncoding(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	name := "latin_" + db.Name()
	db.Exec(t, pgtest.Owner, `create database `+name+` template template0 encoding 'LATIN1' locale 'C'`)
	cfg := db.Pool(pgtest.Owner).Config().ConnConfig
	cfg.Database = name
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close(context.Background())
		db.Exec(t, pgtest.Owner, `drop database `+name+` with (force)`)
	})
	f := read(t, strings.NewReplacer("city]", "Größe]", "text: spring.txt", "text: sms.txt").Replace(spring))
	s, err := f.Query(t.Context(), conn, "people.sql", `select v.name || '@example.com' as email, v.city as name, v.city as "Größe", null as tz
		from (values ('ann', 'Orl' || chr(233) || 'ans'), ('bob', 'Lyon'), ('eve', 'Besan' || chr(231) || 'on')) v (name, city) where v.city <> 'Orléans' order by v.name desc`)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	want(t, "the rows", s.Rows, 2)
	m, err := s.Member(1)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the first", m.Address+" "+string(m.Data), `eve@example.com {"name":"Besançon","Größe":"Besançon"}`)
	if _, err := f.Query(t.Context(), conn, "people.sql", `select '東京' as email`); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "no equivalent") {
		t.Errorf("a letter that the database does not have: %v", err)
	}
}

// A segment are the contacts of the tenant that its predicate chooses, once each, with the data that the campaign takes.
func TestContacts(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.App, `select * from deed.upsert_contacts('{1,2,3,4}', '{email,email,email,phone}', '{ann@example.com,bob@example.com,cid@example.com,+493012345}',
		array['{"name": "Ann", "city": "Lyon"}', '{"name": "Bob", "city": "Paris"}', '{"name": "Cid", "city": "Lyon", "more": [1]}', '{"city": "Lyon"}']::jsonb[])`)
	f := read(t, spring+"consent: required\n")
	f.Request.NeedsConsent = false
	f.Segment = `$.city == "Lyon"`
	load := func() string {
		t.Helper()
		s, err := f.Contacts(t.Context(), db.Pool(pgtest.App), campaign.Scope{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		got, err := s.Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, file.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(address || ' ' || data, ', ' order by address), '') from deed.audience_members where audience_id = $1::text::uuid`, got.Audience)
	}
	want(t, "the members", load(), `ann@example.com {"city": "Lyon", "name": "Ann"}, cid@example.com {"city": "Lyon", "name": "Cid"}`)
	f.Request.NeedsConsent = true
	want(t, "those who have agreed", load(), "")
	f.Segment = `$.city ==`
	if _, err := f.Contacts(t.Context(), db.Pool(pgtest.App), campaign.Scope{}); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "no jsonpath") {
		t.Errorf("a segment that is none: %v", err)
	}
}

// Who was merged is in a segment by what each of their names is known by, once, as the one that is left.
func TestContacts_Merged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	owner := db.Pool(pgtest.Owner)
	db.Exec(t, pgtest.App, `select * from deed.upsert_contacts('{1,2,3}', '{external_id,email,email}', '{7,ann@example.com,late@example.com}', array['{"city": "Lyon"}', '{"city": "Lyon"}', '{"city": "Lyon"}']::jsonb[])`)
	of := func(value string) string {
		return pgtest.One[string](t, owner, `select contact_id::text from deed.contact_identities where value = $1`, value)
	}
	root := of("7")
	db.Exec(t, pgtest.App, `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'the same')`, of("late@example.com"), of("ann@example.com"))
	db.Exec(t, pgtest.App, `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'the same')`, of("ann@example.com"), root)
	f := read(t, spring)
	f.Segment = `$.city == "Lyon"`
	s, err := f.Contacts(t.Context(), db.Pool(pgtest.App), campaign.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	got, err := s.Load(t.Context(), db.Pool(pgtest.App), campaign.Scope{}, campaign.Email, file.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the members", pgtest.One[string](t, owner, `select coalesce(string_agg(address || ' ' || contact_id, ', '), '') from deed.audience_members where audience_id = $1::text::uuid`, got.Audience), "ann@example.com "+root)
}
