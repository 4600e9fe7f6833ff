package file_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/file"
	"github.com/deedhq/deed/internal/pgtest"
)

const stored = `select concat_ws(' ', (select count(*) from deed.campaigns), (select count(*) from deed.campaign_contents), (select count(*) from deed.audiences),
	(select count(*) from deed.campaign_runs), (select count(*) from deed.contacts), (select count(*) from deed.audit_log where subject_type in ('campaign', 'audience', 'run')))`

// What would keep a campaign from being deployed is said at once, by name and with the rows, and nothing is stored.
func TestContract_C8_CheckSaysAllAndStoresNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := read(t, strings.NewReplacer("purpose: newsletter\n", "", "from: Shop <shop@example.com>\n", "", "data: [name, city]", "data: [name, city, at]",
		"{{ contact.name }}, spring", "{{ contact.at | date: '%Y' }}, spring").Replace(spring))
	s := rows(t, f, `email,name,city,tz,at
ann@example.com,Ann,Lyon,,2026-01-01
bob@example.com,,Lyon,,yesterday
not an address,Cid,Lyon,,2026-01-01
ann@example.com,Ann,Lyon,,2026-01-01
dan@example.com,Dan,Lyon
eve@example.com,,,,2026-01-01
`)
	checked, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: s})
	if deed.CodeOf(err) != deed.Invalid {
		t.Fatalf("%v, want it to be invalid", err)
	}
	for _, problem := range []string{
		"people.csv:3: template_error: subject: ", "people.csv:4: its address is none", "people.csv:5: has the contact of member 1", "people.csv:6: 3 fields, but the header has 5",
		"spring.yaml: ", "no_provider:", "no_purpose:", "no_sender:",
	} {
		if !strings.Contains(err.Error(), problem) {
			t.Errorf("%s is not said: %v", problem, err)
		}
	}
	want(t, "the sample", checked.Sampled, 5)
	if len(checked.Missing) != 2 || checked.Missing[0] != (file.Missing{Name: "contact.city", Members: 1, First: 7}) || checked.Missing[1] != (file.Missing{Name: "contact.name", Members: 2, First: 3}) {
		t.Errorf("what is missing: %+v", checked.Missing)
	}
	want(t, "what is stored", pgtest.One[string](t, db.Pool(pgtest.Owner), stored), "0 0 0 0 0 0")

	db.Providers(t, "fake", "mail")
	good := read(t, spring)
	for _, opts := range []file.Options{{}, {Source: rows(t, good, people)}} {
		if _, err := good.Check(t.Context(), db.Pool(pgtest.App), opts); err != nil {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if _, err := good.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, good, "email,tz,name,city\n")}); err == nil || !strings.Contains(err.Error(), "empty_audience:") {
		t.Errorf("nobody: %v", err)
	}
	if _, err := good.Check(t.Context(), db.Pool(pgtest.App), file.Options{At: time.Now().Add(-25 * time.Hour)}); err == nil || !strings.Contains(err.Error(), "expired:") {
		t.Errorf("too late: %v", err)
	}
	want(t, "what is stored", pgtest.One[string](t, db.Pool(pgtest.Owner), stored), "0 0 0 0 0 0")
}

// Without a list of data templates may ask for every column of the file, and for no other.
func TestCheck_ColumnsOfTheFile(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	f := read(t, strings.Replace(spring, ", data: [name, city]", "", 1))
	if _, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, people)}); err != nil {
		t.Error(err)
	}
	_, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, "email,tz,town,name\nann@example.com,,Lyon,Ann\n")})
	if err == nil || !strings.Contains(err.Error(), "spring.txt:1: template_error: undefined name contact.city: there is contact.name, contact.town, unsubscribe_url") {
		t.Errorf("a column that is not there: %v", err)
	}
}

// A column with a point in its name is data that no template can ask for, and stands in no other's way.
func TestCheck_AColumnWithAPoint(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	const csv = "email,tz,name,city,Nr.,Mr./Mrs.,addr.city,.\nann@example.com,,Ann,Lyon,7,Mrs.,Paris,x\n"
	f := read(t, strings.Replace(spring, ", data: [name, city]", "", 1))
	if _, err := f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, csv)}); err != nil {
		t.Error(err)
	}
	d, err := f.Deploy(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, csv)})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "the data", pgtest.One[string](t, db.Pool(pgtest.Owner), `select data ->> 'Nr.' from deed.audience_members where audience_id = $1::text::uuid`, d.Loaded.Audience), "7")
	f = read(t, strings.NewReplacer(", data: [name, city]", "", "{{ contact.name }}, spring", "{{ contact.addr.city }}, spring").Replace(spring))
	_, err = f.Check(t.Context(), db.Pool(pgtest.App), file.Options{Source: rows(t, f, csv)})
	if err == nil || !strings.Contains(err.Error(), "undefined name contact.addr.city: there is contact.city, contact.name, unsubscribe_url") {
		t.Errorf("it is asked for: %v", err)
	}
}

// The same file to the same people is the same run, at whatever moment; anything else in it is another.
func TestContract_C1_SameFileSameRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	f := read(t, spring)
	deploy := func(f *file.File, csv string, opts file.Options) file.Deployed {
		t.Helper()
		opts.Source = rows(t, f, csv)
		d, err := f.Deploy(t.Context(), db.Pool(pgtest.App), opts)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := deploy(f, people, file.Options{})
	if !first.New || first.Loaded.Members != 2 {
		t.Errorf("%+v", first)
	}
	again := deploy(f, people, file.Options{})
	want(t, "again", again.Run, first.Run)
	want(t, "again it is new", again.New, false)
	other := read(t, strings.Replace(spring, "spring is here", "it is spring", 1))
	for what, d := range map[string]file.Deployed{
		"other words":     deploy(other, people, file.Options{}),
		"other people":    deploy(f, people+"cid@example.com,Cid,Lyon,,\n", file.Options{}),
		"another time":    deploy(f, people, file.Options{At: time.Now().Add(time.Hour)}),
		"another request": deploy(f, people, file.Options{RequestID: "once more"}),
	} {
		if d.Run == first.Run || !d.New {
			t.Errorf("%s: %+v", what, d)
		}
	}
	if _, err := other.Deploy(t.Context(), db.Pool(pgtest.App), file.Options{RequestID: "once more", Source: rows(t, other, people)}); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("the same request of something else: %v", err)
	}
	want(t, "jobs", pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(from_n || '-' || upto_n, ' ' order by from_n) from deed.job_queue where run_id = $1::text::uuid`, first.Run), "1-2")
}

// Of rows in which several columns cannot be used it is said each time of the same one, so that they are the same people, and the same run.
func TestContract_C1_SameBadRowsSameRun(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	f := read(t, spring)
	text := strings.Repeat(`{"email": false, "tz": false, "name": "X", "city": "Y"}`+"\n", 20) + `{"email": "ann@example.com", "name": "Ann", "city": "Lyon"}` + "\n"
	var first file.Deployed
	for n := range 8 {
		s, err := f.Read(t.Context(), strings.NewReader(text), "people.ndjson", "")
		if err != nil {
			t.Fatal(err)
		}
		var named []string
		d, err := f.Deploy(t.Context(), db.Pool(pgtest.App), file.Options{Source: s, Load: file.LoadOptions{LeaveOut: true, Rejected: func(_ int, why string) { named = append(named, why) }}})
		if err != nil || d.Loaded.Members != 1 || d.Loaded.LeftOut != 20 {
			t.Fatalf("%+v %v", d.Loaded, err)
		}
		if n == 0 {
			first = d
			want(t, "rows that are bad by their address", strings.Count(strings.Join(named, "\n"), `"email" is neither text nor a number`), 20)
		}
		want(t, "the run", d.Run, first.Run)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	want(t, "audiences and runs", pgtest.One[string](t, db.Pool(pgtest.Owner), `select concat_ws(' ', (select count(*) from deed.audiences), (select count(*) from deed.campaign_runs))`), "1 1")
}

// A run that is there is the repeat's, whatever has changed since it was made: it is not judged as one that is yet to be made.
func TestContract_C1_ARepeatIsNotJudgedAnew(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	app, owner := db.Pool(pgtest.App), db.Pool(pgtest.Owner)
	db.Providers(t, "fake", "mail")
	ann, bob, eve := "", "", ""
	for name, id := range map[string]*string{"ann": &ann, "bob": &bob, "eve": &eve} {
		*id = pgtest.One[string](t, app, `select id::text from deed.upsert_contacts('{1}', '{external_id}', array[$1::text], array['{}'::jsonb])`, name)
	}
	f := read(t, strings.Replace(spring, "address: email,", "address: email, contact: who,", 1)+"zone: Europe/Paris\n")
	people := "email,who,name,city,tz\nann@example.com," + ann + ",Ann,Lyon,\nbob@example.com," + bob + ",Bob,Lyon,\neve@example.com," + eve + ",Eve,Lyon,\n"
	refuses := func(_ context.Context, from, _ string) (error, error) {
		return errors.New(from + " is not allowed"), nil
	}
	at := time.Now().Add(time.Hour)
	deploy := func(opts file.Options) (file.Deployed, error) {
		t.Helper()
		if opts.Audience == "" {
			opts.Source = rows(t, f, people)
		}
		opts.At = at
		if _, err := f.Check(t.Context(), db.Pool(pgtest.App), opts); err != nil {
			return file.Deployed{}, err
		}
		return f.Deploy(t.Context(), db.Pool(pgtest.App), opts)
	}
	first, err := deploy(file.Options{})
	if err != nil || !first.New {
		t.Fatalf("%+v %v", first, err)
	}
	named, err := deploy(file.Options{Audience: first.Loaded.Audience})
	if err != nil || named.Run != first.Run {
		t.Errorf("to the audience itself, with a zone that is not of this run: %+v %v, want run %s", named, err, first.Run)
	}
	db.Exec(t, pgtest.App, `select deed.merge_contacts($1::text::uuid, $2::text::uuid, 'the same')`, bob, ann)
	db.Exec(t, pgtest.Admin, `select deed.erase_contact($1::text::uuid, 'asked to', 'ann')`, eve)
	db.Exec(t, pgtest.Owner, `update deed.providers set verified_domains = '{other.example}'`)
	for range 2 {
		again, err := deploy(file.Options{Sender: refuses})
		if err != nil || again.New || again.Run != first.Run {
			t.Errorf("again: %+v %v, want run %s", again, err, first.Run)
		}
		if again, err = deploy(file.Options{Audience: first.Loaded.Audience, Sender: refuses}); err != nil || again.New || again.Run != first.Run {
			t.Errorf("again, to the audience itself: %+v %v, want run %s", again, err, first.Run)
		}
	}
	_, err = deploy(file.Options{RequestID: "another", Sender: refuses})
	for _, why := range []string{"unverified_domain:", "no_sender:"} {
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("another request: %v, want %s", err, why)
		}
	}
	if err != nil && strings.Contains(err.Error(), "people.csv:") {
		t.Errorf("rows that were loaded are judged anew: %v", err)
	}
	f.Request.Zone = "Mars/Olympus"
	if _, err := deploy(file.Options{RequestID: "another"}); err == nil || !strings.Contains(err.Error(), "Mars/Olympus") {
		t.Errorf("a zone that nobody knows: %v", err)
	}
	want(t, "runs", pgtest.One[int](t, owner, `select count(*)::int from deed.campaign_runs`), 1)
}

// What is read again may be others, or in another order: without a request id it is refused before anything is stored, and
// with one the same people are the same run, in whatever order they come, and others a conflict. Never are there two runs.
func TestContract_C1_AQueryThatIsReadAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "mail")
	f := read(t, spring)
	f.Segment = `$.city == "Lyon"`
	conn := db.Conn(t, pgtest.Owner)
	db.Exec(t, pgtest.Owner, `create table deed.mine (email text, name text, city text, tz text)`)
	db.Exec(t, pgtest.Owner, `insert into deed.mine values ('ann@example.com', 'Ann', 'Lyon', null), ('bob@example.com', 'Bob', 'Lyon', null)`)
	deploy := func(request string, source func() (*file.Source, error)) (file.Deployed, error) {
		t.Helper()
		s, err := source()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		return f.Deploy(t.Context(), db.Pool(pgtest.App), file.Options{RequestID: request, Source: s})
	}
	query := func() (*file.Source, error) {
		return f.Query(t.Context(), conn, "people.sql", `select * from deed.mine`)
	}
	segment := func() (*file.Source, error) {
		return f.Contacts(t.Context(), db.Pool(pgtest.App), campaign.Scope{})
	}
	for what, source := range map[string]func() (*file.Source, error){"a query": query, "a segment": segment} {
		if d, err := deploy("", source); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "--request-id") {
			t.Errorf("%s without a request id: %+v %v", what, d, err)
		}
	}
	want(t, "what is stored", pgtest.One[string](t, db.Pool(pgtest.Owner), stored), "0 0 0 0 0 0")

	first, err := deploy("spring-1", query)
	if err != nil || !first.New {
		t.Fatalf("%+v %v", first, err)
	}
	db.Exec(t, pgtest.Owner, `update deed.mine set name = 'Ann' where name = 'Ann'`) // it stands behind Bob now
	again, err := deploy("spring-1", query)
	if err != nil || again.New || again.Run != first.Run {
		t.Errorf("the same people in another order: %+v %v, want run %s", again, err, first.Run)
	}
	db.Exec(t, pgtest.Owner, `update deed.mine set city = 'Paris' where name = 'Ann'`)
	if d, err := deploy("spring-1", query); deed.CodeOf(err) != deed.Conflict {
		t.Errorf("people that have changed: %+v %v, want a conflict", d, err)
	}
	want(t, "runs", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.campaign_runs`), 1)
	db.Exec(t, pgtest.Owner, `drop table deed.mine`)
}
