package contact_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// Who is known by something is one contact, however it is written, and in two tenants
// two (O15).
func TestContract_O15_OneContactHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := upsert(t, db, known("email", "Ann@Bücher.example", "phone", "+49 170 1234567", "external_id", "acct_123", "whatsapp", "+49 (170) 1234567"))
	same(t, "at first", outcomes(first), []contact.Outcome{contact.Created})
	for _, p := range []contact.Person{
		known("email", " ann@xn--bcher-kva.example\n"), known("phone", "+49-170-123 45 67"), known("external_id", "acct_123"),
		known("whatsapp", "491701234567"), known("external_id", "ａｃｃｔ_123"),
	} {
		got := upsert(t, db, p)
		if got[0].Outcome != contact.Unchanged || got[0].ID != first[0].ID {
			t.Errorf("%v: %+v, want %s", p, got, first[0].ID)
		}
	}
	for _, p := range []contact.Person{known("external_id", "ACCT_123"), known("email", "ann+x@bücher.example"), known("telegram", "491701234567")} {
		if got := upsert(t, db, p); got[0].Outcome != contact.Created {
			t.Errorf("%v: %+v", p, got)
		}
	}
}

// Within a call as between calls: who comes twice is changed twice, who is two is a
// conflict and changes nothing, and the others go through.
func TestUpsert_WithinACall(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	with := func(data string, p contact.Person) contact.Person {
		p.Data = json.RawMessage(data)
		return p
	}
	list := upsert(
		t, db,
		with(`{"a": 1, "b": 1}`, known("email", "x@example.com")),
		with(`{"b": 2}`, known("email", "X@example.com")),
		with(`{"c": 3}`, known("email", "x@example.com", "phone", "+4930123456")),
		known("external_id", "1"), known("external_id", "2"),
		with(`{"never": 1}`, known("external_id", "1", "external_id", "2", "email", "free@example.com")),
		known("email", "free@example.com"),
	)
	same(t, "outcomes", outcomes(list), []contact.Outcome{"created", "updated", "updated", "created", "created", "conflict", "created"})
	if list[0].ID != list[1].ID || list[0].ID != list[2].ID || list[5].ID != "" {
		t.Errorf("%+v", list)
	}
	others := []string{list[3].ID, list[4].ID}
	slices.Sort(others)
	same(t, "whose they are", list[5].Others, others)
	c, err := contact.Get(t.Context(), db.Pool(pgtest.App), list[0].ID)
	same(t, "no error", err, nil)
	same(t, "data", string(c.Data), `{"a": 1, "b": 2, "c": 3}`)
	same(t, "identities", c.Identities, []contact.Identity{{Type: "email", Value: "x@example.com"}, {Type: "phone", Value: "+4930123456"}})
	open := `select count(*) || ' ' || sum(times) from deed.identity_conflicts where settled_at is null`
	same(t, "conflicts", pgtest.One[string](t, db.Pool(pgtest.Admin), open), "1 1")
	upsert(t, db, known("external_id", "2", "external_id", "1"))
	same(t, "conflicts", pgtest.One[string](t, db.Pool(pgtest.Admin), open), "1 2")
}

// Bad input names the contact and the field, and nothing is stored.
func TestUpsert_Bad(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	deep := json.RawMessage(`{"a":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}`)
	for want, p := range map[string]contact.Person{
		"contact 2: it has no identity":                    {Zone: "Europe/Berlin"},
		"contact 2: email: it is more than local@domain":   known("email", "Bob <bob@example.com>"),
		"contact 2: phone: it is not a number in E.164":    known("phone", "0170 1234567"),
		"contact 2: phone: it is not a number":             known("phone", "call me"),
		"contact 2: external_id: it is empty":              known("external_id", " "),
		"contact 2: external_id: it has over 500":          known("external_id", strings.Repeat("x", 501)),
		"contact 2: slack: it has a character that nobody": known("slack", "U\u200b1"),
		"contact 2: Mail: its type is not a name":          known("Mail", "x"),
		"contact 2: zone is not the name of a time zone":   {Identities: known("slack", "U1").Identities, Zone: "Mars/Base"},
		"zone is not the name of a time zone, such as Eur": {Identities: known("slack", "U1").Identities, Zone: "Foo/Bar3"},
		"contact 2: locale is not a language tag":          {Identities: known("slack", "U1").Identities, Locale: "german please"},
		"contact 2: data must be a JSON objec":             {Identities: known("slack", "U1").Identities, Data: json.RawMessage(`[1]`)},
		"contact 2: data of ":                              {Identities: known("slack", "U1").Identities, Data: json.RawMessage(`{"a": "` + noise(70_000) + `"}`)},
		"contact 2: data have over 1000 arrays":            {Identities: known("slack", "U1").Identities, Data: deep},
		"contact 2: data have numbers with so many digits": {Identities: known("slack", "U1").Identities, Data: json.RawMessage(`{"a": 1e100000}`)},
		"contact 2: data or an identity are not UTF-8":     known("slack", "\xff"),
		"contact 2: telegram: it has a character that nob": known("telegram", "4\x002"),
		"contact 2: zone is not the name of a time zone, ": {Identities: known("slack", "U1").Identities, Zone: "\xff"},
		"contact 2: data have over 1000 arrays and object": {Identities: known("slack", "U1").Identities, Data: json.RawMessage(strings.Repeat(`{"a":`, 100_000))},
		"contact 2: data have numbers with so many digit":  {Identities: known("slack", "U1").Identities, Data: json.RawMessage(`{"a": 1e999999999999}`)},
		`contact 2: data have the escape \u0000, which`:    {Identities: known("slack", "U1").Identities, Data: json.RawMessage(`{"a": "\\\u0000"}`)},
		"contact 2: data have half of a surrogate pair":    {Identities: known("slack", "U1").Identities, Data: json.RawMessage(`{"a": "\ud83d \ude00"}`)},
		"contact 2: data must be a JSON object":            {Identities: known("slack", "U1").Identities, Data: json.RawMessage(`{"a": 1`)},
	} {
		_, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", known("email", "good@example.com"), p)
		if !errors.Is(err, contact.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "Bob") || strings.Contains(err.Error(), "170")) {
			t.Errorf("the error has the value: %v", err)
		}
		problems, checkErr := contact.Check(t.Context(), db.Pool(pgtest.App), known("email", "good@example.com"), p)
		if checkErr != nil || len(problems) != 1 || problems[0].N != 2 || err == nil || !strings.HasSuffix(err.Error(), "contact 2: "+problems[0].Text) {
			t.Errorf("checked: %v, %v; want what Upsert says: %v", problems, checkErr, err)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.contacts`); n != 0 {
		t.Errorf("%d contacts were made", n)
	}
	many := contact.Person{}
	for n := range 10_000 {
		many.Identities = append(many.Identities, contact.Identity{Type: "external_id", Value: fmt.Sprint(n)})
	}
	if _, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", many); !errors.Is(err, contact.ErrInvalid) {
		t.Errorf("ten thousand identities: %v", err)
	}
	problems, err := contact.Check(t.Context(), db.Pool(pgtest.App), contact.Person{}, known("slack", "U1"), many, known("phone", "1"))
	want := []contact.Problem{{N: 1, Text: "it has no identity"}, {N: 3, Text: "it has over 100 identities"}, {N: 4, Text: "phone: it is not a number: digits, after + and the country's code"}}
	same(t, "no error", err, nil)
	same(t, "problems", problems, want)
}

// What is unusual and good is stored as it was.
func TestUpsert_GoodData(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for i, data := range []string{
		`{"a": "\\u0000 \\\\ud800 \ud83d\ude00 \"[[[", "n": [1e300, 0.00000000000000000000000000000000000000001, -12345678901234567890123456789012345]}`,
		` {"a": ` + strings.Repeat("[", 998) + strings.Repeat("]", 998) + `}`,
		`{"a": 0e999, "b": "-1e999999"}`,
	} {
		p := known("external_id", fmt.Sprint(i))
		p.Data = json.RawMessage(data)
		problems, err := contact.Check(t.Context(), db.Pool(pgtest.App), p)
		if err != nil || len(problems) > 0 {
			t.Errorf("%.60s: %v, %v", data, problems, err)
		}
		same(t, "outcome", outcomes(upsert(t, db, p)), []contact.Outcome{contact.Created})
	}
}

// noise is a text that nothing makes shorter.
func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rand.IntN(26))
	}
	return string(b)
}

// Many at once, of few people, in calls of many persons in any order: nobody waits for
// ever, an identity has one contact, whoever was told an outcome has what he gave, and
// nobody is left who is known by nothing.
func TestUpsert_Races(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	type told struct {
		person contact.Person
		result contact.Upserted
	}
	var mu sync.Mutex
	var all []told
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			conn := db.Conn(t, pgtest.App)
			for range 40 {
				var persons []contact.Person
				for range 1 + rand.IntN(8) {
					var pairs []string
					for range 1 + rand.IntN(2) {
						pairs = append(pairs, []string{"email", "external_id", "slack"}[rand.IntN(3)])
						pairs = append(pairs, fmt.Sprintf("p%d@example.com", rand.IntN(60)))
					}
					persons = append(persons, known(pairs...))
				}
				list, err := contact.Upsert(ctx, conn, "test", persons...)
				if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "40P01" {
					t.Error("two calls waited for each other")
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i := range persons {
					all = append(all, told{persons[i], list[i]})
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	owner := map[contact.Identity]string{}
	list, err := contact.List(ctx, db.Pool(pgtest.App), contact.Filter{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if len(c.Identities) == 0 {
			t.Errorf("contact %s is known by nothing", c.ID)
		}
		for _, i := range c.Identities {
			if owner[i] != "" {
				t.Errorf("%v is of %s and %s", i, owner[i], c.ID)
			}
			owner[i] = c.ID
		}
	}
	kinds := map[contact.Outcome]int{}
	for _, x := range all {
		kinds[x.result.Outcome]++
		seen := map[string]bool{}
		for _, i := range x.person.Identities {
			seen[owner[i]] = true
		}
		switch x.result.Outcome {
		case contact.Conflicting:
			if len(x.result.Others) < 2 {
				t.Errorf("a conflict of %v", x.result.Others)
			}
			delete(seen, "")
			if len(seen) < 2 {
				t.Errorf("%v was a conflict, and is of one contact", x.person)
			}
		default:
			if len(seen) != 1 || !seen[x.result.ID] {
				t.Errorf("%v was %s as %s, and is of %v", x.person, x.result.Outcome, x.result.ID, seen)
			}
		}
	}
	t.Log(kinds)
	if kinds[contact.Conflicting] == 0 || kinds[contact.Unchanged] == 0 || kinds[contact.Created] == 0 {
		t.Error("it shows nothing")
	}
}

// Who adds to a contact what another call has under way, and waits for it, is not in that
// one's way if it turns out to be of the same contact.
func TestUpsert_TwoGiveOneContactTheSame(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("email", "ann@example.com"))[0].ID
	hold := begin(t, db, pgtest.App)
	if _, err := contact.Upsert(t.Context(), hold, "test", known("slack", "T1:Z")); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	waiting := int64(0)
	call := func(want []contact.Outcome, persons ...contact.Person) {
		calls.Go(func() {
			list, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", persons...)
			if err != nil {
				t.Errorf("%v: %v", persons, err)
				return
			}
			same(t, "outcomes", outcomes(list), want)
			if list[0].ID != ann {
				t.Errorf("%v is %s, want %s", persons[0], list[0].ID, ann)
			}
		})
		waiting++
		if !pgtest.Wait(pgtest.Patience, func() bool {
			return waiting == pgtest.One[int64](t, db.Pool(pgtest.Owner), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
		}) {
			t.Error("it did not wait")
		}
	}
	// They share the first of two, so that whose it is is asked last.
	call([]contact.Outcome{contact.Updated, contact.Updated},
		known("email", "ann@example.com", "slack", "T1:P"), known("slack", "T1:P", "slack", "T1:Z"))
	call([]contact.Outcome{contact.Unchanged}, known("email", "ann@example.com", "slack", "T1:P"))
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
}

// Who adds an identity by the contact's id takes locks in the order of those who find the
// contact by what it is known as: neither is ended as a deadlock.
func TestAddIdentity_BesideAnUpsert(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("email", "ann@example.com"))[0].ID
	hold := begin(t, db, pgtest.Owner)
	if _, err := hold.Exec(t.Context(), `select from deed.contacts where id = $1::text::uuid for no key update`, ann); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	waiting := int64(0)
	call := func(what string, do func() error) {
		calls.Go(func() {
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
		waiting++
		if !pgtest.Wait(pgtest.Patience, func() bool {
			return waiting == pgtest.One[int64](t, db.Pool(pgtest.Owner), `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
		}) {
			t.Error("it did not wait")
		}
	}
	call("add", func() error {
		_, err := db.Pool(pgtest.App).Exec(t.Context(), `select deed.add_identity($1::text::uuid, 'phone', '+49301234567')`, ann)
		return err
	})
	call("upsert", func() error {
		_, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", known("email", "ann@example.com", "phone", "+49301234567"))
		return err
	})
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
}

// A call leaves the settings of the transaction that it is in as they were.
func TestUpsert_LeavesTheSettings(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	settings := func() string {
		return pgtest.One[string](t, tx, `select string_agg(name || '=' || setting, ' ' order by name) from pg_settings where name ~ '^enable_' or name in ('jit', 'work_mem', 'plan_cache_mode', 'search_path')`)
	}
	before := settings()
	for _, n := range []int{1, 30} {
		var persons []contact.Person
		for i := range n {
			persons = append(persons, known("external_id", fmt.Sprint(n, " ", i)))
		}
		list, err := contact.Upsert(t.Context(), tx, "test", persons...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := contact.SetConsents(t.Context(), tx, "test", contact.Word{Contact: list[0].ID, Channel: "email", Purpose: "news", State: contact.Granted, Source: "test"}); err != nil {
			t.Fatal(err)
		}
		same(t, "settings", settings(), before)
	}
}

// A contact has 100 identities at the most, however they come: in many calls, in one whose
// persons turn out to be one, one by one, by merging, or by what a messenger says. What is
// too much changes nothing.
func TestUpsert_AtMostAHundredIdentities(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(pgtest.App)
	some := func(from, to int) (pairs []string) {
		for i := from; i < to; i++ {
			pairs = append(pairs, "telegram", fmt.Sprint(i))
		}
		return pairs
	}
	count := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.contact_identities`)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, contact.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "over 100 identities") {
			t.Errorf("%s: %v", what, err)
		}
	}
	ann := known("external_id", "ann")
	id := upsert(t, db, known(append(some(0, 98), "external_id", "ann")...))[0].ID
	same(t, "the hundredth", upsert(t, db, known(append(some(98, 99), "external_id", "ann")...))[0].Outcome, contact.Updated)
	full := known(append(some(99, 100), "external_id", "ann")...)
	full.Data, full.Zone = json.RawMessage(`{"plan": "free"}`), "Europe/Berlin"
	got := upsert(t, db, known("external_id", "bob"), full, known(append(some(100, 101), "external_id", "ann")...), known(append(some(101, 102), "external_id", "bob")...))
	same(t, "outcomes beside one that is full", []contact.Outcome{got[0].Outcome, got[1].Outcome, got[2].Outcome, got[3].Outcome},
		[]contact.Outcome{contact.Created, contact.Full, contact.Full, contact.Updated})
	same(t, "who is full", got[1].ID, id)
	same(t, "with one that is full", count(), 102)
	same(t, "what it has of it", pgtest.One[bool](t, db.Pool(pgtest.Owner), `select data = '{}' and zone is null from deed.contacts where id = $1::text::uuid`, id), true)
	db.Exec(t, pgtest.Owner, `insert into deed.contact_identities (tenant_id, contact_id, type, value, created_at)
		select tenant_id, id, 'telegram', 'old' || n, now() - interval '1 day' from deed.contacts, generate_series(1, 7) n where id = '`+id+`'`) // from before the bound
	got = upsert(t, db, full, known("external_id", "carl"))
	same(t, "one from before the bound", []contact.Outcome{got[0].Outcome, got[1].Outcome}, []contact.Outcome{contact.Full, contact.Created})
	db.Exec(t, pgtest.Owner, `delete from deed.contact_identities where value like 'old%'`)
	same(t, "what it has", upsert(t, db, ann)[0].Outcome, contact.Unchanged)
	_, err := pool.Exec(t.Context(), `select deed.add_identity($1::text::uuid, 'telegram', '1000')`, id)
	if err == nil || !strings.Contains(err.Error(), "over 100 identities") {
		t.Errorf("one by one: %v", err)
	}
	other := upsert(t, db, known("email", "other@example.com"))[0].ID
	_, err = contact.Merge(t.Context(), pool, nil, other, id, why)
	refused("merged", err)
	got = upsert(t, db, known(append(some(200, 260), "email", "x@example.com")...), known(append(some(300, 360), "email", "x@example.com")...))
	same(t, "two that turn out to be one", []contact.Outcome{got[0].Outcome, got[1].Outcome}, []contact.Outcome{contact.Created, contact.Full})
	same(t, "what the first gave, too", knownAs(t, db, "email", "x@example.com"), got[0].ID)
	// Who was merged counts with whom they are.
	half := upsert(t, db, known(some(400, 460)...))[0].ID
	same(t, "merged", merge(t, db, other, half), true)
	same(t, "with what was merged into it", upsert(t, db, known(append(some(500, 540), "email", "other@example.com")...))[0].Outcome, contact.Full)
	same(t, "in the end", count(), 225)
}

// Of one whom several persons of a call are, each is judged in its turn, as if it were given in a call of its own: what one gives
// that is taken no other takes away that is not, nor is it taken for what one gives that is not.
func TestUpsert_FullInTheTurnOfACall(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	// Each person is one of ann's identities, and what it gives; in capitals it is verified.
	for what, c := range map[string]struct{ given, outcomes, has string }{
		"the second has too many":                 {"a b, a b c", "updated full", "b"},
		"the first has too many":                  {"a b c, a b", "full updated", "b"},
		"and the second another one":              {"a b c, a d", "full updated", "d"},
		"nor do they share the one they know":     {"a b c, x d", "full updated", "d"},
		"one that has too many between others":    {"a b, a c d, x b", "updated full updated", "b"},
		"what the first does not give is another": {"a b c, a b d, a c", "full full updated", "c"},
		"both have too many":                      {"a b c, x d e", "full full", ""},
		"only one that has too many verifies it":  {"a B c, a b", "full updated", "b"},
		"one that is taken verifies it":           {"a b c, a B", "full updated", "B"},
		"the same ones twice":                     {"a b c, a b c, a b", "full full updated", "b"},
	} {
		prefix := strings.ReplaceAll(what, " ", "") + "-"
		ann := []string{"telegram", prefix + "a", "telegram", prefix + "x"}
		for i := range 97 {
			ann = append(ann, "telegram", prefix+fmt.Sprint(i))
		}
		upsert(t, db, known(ann...))
		var persons []contact.Person
		for _, given := range strings.Split(c.given, ", ") {
			var p contact.Person
			for _, v := range strings.Fields(given) {
				p.Identities = append(p.Identities, contact.Identity{Type: "telegram", Value: prefix + strings.ToLower(v), Verified: v != strings.ToLower(v)})
			}
			persons = append(persons, p)
		}
		same(t, what, strings.ReplaceAll(strings.Trim(fmt.Sprint(outcomes(upsert(t, db, persons...))), "[]"), ",", ""), c.outcomes)
		same(t, what+": what it has got", pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce(string_agg(case when verified_at is null then substr(value, length($1) + 1) else upper(substr(value, length($1) + 1)) end, ' ' order by value), '')
			from deed.contact_identities where value ~ ('^' || $1 || '[b-e]$')`, prefix), c.has)
	}
}

// Whom a call gives an identity while they are merged into somebody, and who have too many by then, keep none of it.
func TestUpsert_FullOnceItIsMerged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	some := func(from, to int) (pairs []string) {
		for i := from; i < to; i++ {
			pairs = append(pairs, "telegram", fmt.Sprint(i))
		}
		return pairs
	}
	from := upsert(t, db, known(some(0, 60)...))[0].ID
	into := upsert(t, db, known(some(100, 140)...))[0].ID
	merging := begin(t, db, pgtest.App)
	if _, err := contact.Merge(t.Context(), merging, nil, from, into, why); err != nil {
		t.Fatal(err)
	}
	var list []contact.Upserted
	err := waits(t, db, func() (err error) {
		list, err = contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", known("telegram", "0", "telegram", "1000"))
		return err
	}, func() {
		if err := merging.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the outcome", outcomes(list), []contact.Outcome{contact.Full})
	same(t, "whose it is", list[0].ID, into)
	same(t, "what they have", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.contact_identities`), 100)
}

// What is deep, or vast where it is written out, is refused of who calls by SQL, too.
func TestUpsert_VastDataBySQL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	upserted := func(data string) error {
		_, err := db.Pool(pgtest.App).Exec(t.Context(), `select deed.upsert_contacts('{1}', '{email}', '{ann@example.com}', array[$1::text::jsonb])`, data)
		return err
	}
	for problem, data := range map[string]string{
		"data have numbers with so many digits":  `{"n": [` + strings.Repeat("1e131071,", 3000) + `1]}`,
		"data have over 1000 arrays and objects": `{"n": ` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
	} {
		if err := upserted(data); err == nil || !strings.Contains(err.Error(), "contact 1: "+problem) {
			t.Errorf("%v, want %s", err, problem)
		}
	}
	if err := upserted(`{"n": ` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + `}`); err != nil {
		t.Errorf("1,000 levels: %v", err)
	}
}
