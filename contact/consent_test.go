package contact_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

func say(t testing.TB, db *pgtest.DB, of, channel string, state contact.State) contact.State {
	t.Helper()
	held, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "test", contact.Word{Contact: of, Channel: channel, Purpose: "news", State: state, Source: "form"})
	if err != nil {
		t.Fatal(err)
	}
	return held[0]
}

// suppressed are the addresses that are suppressed, as channel:address/purpose.
func suppressed(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(channel || ':' || address || '/' || purpose, ' ' order by channel, address, purpose), '') from deed.suppressions
	`)
}

// What a contact revokes is suppressed for all its addresses of the channel and for
// that purpose, those that it gets later, too; a grant lifts it, and nothing that
// somebody else has suppressed (D11).
func TestContract_D11_RevokedConsentSuppresses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("email", "Ann@example.com", "email", "ann@work.example", "phone", "+4930123456", "telegram", "42", "external_id", "7"))[0].ID
	same(t, "granted", say(t, db, ann, "email", contact.Granted), contact.Granted)
	same(t, "suppressed by a grant", suppressed(t, db), "")
	same(t, "revoked", say(t, db, ann, "email", contact.Revoked), contact.Revoked)
	same(t, "suppressed", suppressed(t, db), "email:ann@example.com/news email:ann@work.example/news")
	same(t, "asked anew", say(t, db, ann, "email", contact.Pending), contact.Revoked)

	upsert(t, db, known("email", "ann@example.com", "email", "ann@new.example"))
	same(t, "with an address more", suppressed(t, db), "email:ann@example.com/news email:ann@new.example/news email:ann@work.example/news")

	db.Exec(t, pgtest.Admin, `select deed.suppress('email', array['ann@work.example'], 'asked by telephone', 'bob', p_purpose => 'news')`)
	db.Exec(t, pgtest.Admin, `select deed.suppress('email', array['ann@example.com'], 'complaint', 'bob', p_purpose => '*')`)
	same(t, "granted again", say(t, db, ann, "email", contact.Granted), contact.Granted)
	same(t, "what others have suppressed", suppressed(t, db), "email:ann@example.com/* email:ann@work.example/news")

	same(t, "revoked by telephone", say(t, db, ann, "sms", contact.Revoked), contact.Revoked)
	same(t, "revoked to a messenger", say(t, db, ann, "chat", contact.Revoked), contact.Revoked)
	same(t, "of other channels", suppressed(t, db), "chat:42/news email:ann@example.com/* email:ann@work.example/news sms:+4930123456/news")
	say(t, db, ann, "chat", contact.Granted)
	say(t, db, ann, "sms", contact.Granted)
	same(t, "lifted", suppressed(t, db), "email:ann@example.com/* email:ann@work.example/news")

	// What was to end holds for ever, and is counted once.
	db.Exec(t, pgtest.Admin, `select deed.suppress('sms', array['+49 30 123456'], 'switched off', 'bob', p_purpose => 'news', p_expires_at => now() + interval '24 hours')`)
	say(t, db, ann, "sms", contact.Revoked)
	same(t, "until", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.suppressions where channel = 'sms' and expires_at is null`), 1)
	// Taken back, it is as somebody else had said, or has said since.
	sms := func() string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `
			select coalesce(string_agg(concat_ws(' ', reason, actor, by_consent, round(extract(epoch from expires_at - now()) / 3600)), ', '), '') from deed.suppressions where channel = 'sms'`)
	}
	say(t, db, ann, "sms", contact.Granted)
	same(t, "as it was before", sms(), "switched off bob f 24")
	say(t, db, ann, "sms", contact.Revoked)
	same(t, "said since", pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.suppress('sms', array['+49 30 123456'], 'asked to', 'eve', p_purpose => 'news', p_expires_at => now() + interval '48 hours')`), int64(1))
	same(t, "ends before", pgtest.One[int64](t, db.Pool(pgtest.Admin), `select deed.suppress('sms', array['+49 30 123456'], 'again', 'eve', p_purpose => 'news', p_expires_at => now() + interval '1 hour')`), int64(0))
	same(t, "meanwhile", sms(), "consent revoked test t")
	say(t, db, ann, "sms", contact.Granted)
	same(t, "as was said since", sms(), "asked to eve f 48")
	say(t, db, ann, "sms", contact.Revoked)
	db.Exec(t, pgtest.Owner, `update deed.suppressions set kept_until = now() where channel = 'sms'`)
	say(t, db, ann, "sms", contact.Granted)
	same(t, "over by then", sms(), "")
	same(t, "found by deed.verify", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.verify()`), 0)
}

// Words of one call are said in its order, to contacts of one tenant.
func TestSetConsents_Many(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := upsert(t, db, known("email", "a@example.com"), known("email", "b@example.com"))
	a, b := list[0].ID, list[1].ID
	word := func(of, purpose string, s contact.State) contact.Word {
		return contact.Word{Contact: of, Channel: "email", Purpose: purpose, State: s, Source: "import", Evidence: []byte(`{"file": 1}`)}
	}
	held, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "", word(a, "x", contact.Revoked), word(b, "x", contact.Pending), word(a, "x", contact.Granted), word(a, "y", contact.Granted), word(a, "y", contact.Revoked))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what holds", held, []contact.State{contact.Granted, contact.Pending, contact.Granted, contact.Revoked, contact.Revoked})
	same(t, "suppressed", suppressed(t, db), "email:a@example.com/y")
	now, err := contact.Consents(t.Context(), db.Pool(pgtest.App), a)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, c := range now {
		states = append(states, c.Channel+" "+c.Purpose+" "+string(c.State))
	}
	same(t, "of a", states, []string{"email x granted", "email y revoked"})

	var said []string
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		words, err := contact.Words(t.Context(), db.Pool(pgtest.App), contact.WordFilter{Cursor: cursor, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range words.Items {
			said = append(said, w.Purpose+" "+string(w.State))
			same(t, "evidence", string(w.Evidence), `{"file": 1}`)
		}
		cursor = words.Next
	}
	same(t, "all words", said, []string{"y revoked", "y granted", "x granted", "x pending", "x revoked"})
}

// Bad input names what is wrong, and nothing is kept.
func TestSetConsents_BadInput(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("email", "ann@example.com"))[0].ID
	good := contact.Word{Contact: ann, Channel: "email", Purpose: "news", State: contact.Revoked, Source: "form"}
	for want, change := range map[string]func(w *contact.Word){
		"must be a UUID": func(w *contact.Word) { w.Contact = "ann@example.com" },
		"there is no ":   func(w *contact.Word) { w.Contact = "00000000-0000-4000-8000-000000000001" },
		"channel must":   func(w *contact.Word) { w.Channel = "mail" },
		"purpose must":   func(w *contact.Word) { w.Purpose = "*" },
		"purpose mus":    func(w *contact.Word) { w.Purpose = "" },
		"state must":     func(w *contact.Word) { w.State = "yes" },
		"source, whi":    func(w *contact.Word) { w.Source = "" },
		"source,":        func(w *contact.Word) { w.Source = strings.Repeat("x", 201) },
		"evidence mu":    func(w *contact.Word) { w.Evidence = []byte(`[1]`) },
		"evidence m":     func(w *contact.Word) { w.Evidence = fmt.Appendf(nil, `{"x": "%s"}`, strings.Repeat("x", 9000)) },
		"evidence has n": func(w *contact.Word) { w.Evidence = []byte(`{"x": [1e131071, 1]}`) },
		"evidence has o": func(w *contact.Word) {
			w.Evidence = []byte(`{"x": ` + strings.Repeat("[", 1001) + strings.Repeat("]", 1001) + `}`)
		},
		"the escape": func(w *contact.Word) { w.Evidence = []byte(`{"x": "\u0000"}`) },
		"half of a":  func(w *contact.Word) { w.Evidence = []byte(`{"x": "\ud800"}`) },
		"not JSON":   func(w *contact.Word) { w.Evidence = []byte(`{`) },
		"not UTF-8":  func(w *contact.Word) { w.Source = "\xff" },
	} {
		bad := good
		change(&bad)
		_, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "", good, bad)
		if !errors.Is(err, contact.ErrInvalid) && !errors.Is(err, contact.ErrNotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	_, err := db.Pool(pgtest.App).Exec(t.Context(), `select deed.set_consents(array[$1::text::uuid], '{email}', '{news}', '{granted}', '{form}', array['{"x": [1e131071, 1]}'::jsonb])`, ann)
	if err == nil || !strings.Contains(err.Error(), "evidence has numbers") {
		t.Errorf("by SQL: %v", err)
	}
	same(t, "kept", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.consents`), 0)
	same(t, "suppressed", suppressed(t, db), "")
	for _, change := range []string{`update deed.consents set state = 'granted'`, `delete from deed.consents`, `truncate deed.consents`} {
		say(t, db, ann, "email", contact.Revoked)
		if _, err := db.Pool(pgtest.Owner).Exec(t.Context(), change); err == nil {
			t.Errorf("%s: done", change)
		}
	}
	db.Exec(t, pgtest.Owner, `update deed.consents set evidence = '{}'`)
}

// Who was asked confirms by a link that only their address was given, within seven
// days, and unless it was revoked since.
func TestConfirmConsent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("email", "ann@example.com"))[0].ID
	links, err := contact.NewLinks(contact.LinkOptions{URL: "https://hooks.example.com/", Secret: "a secret of enough bytes"})
	if err != nil {
		t.Fatal(err)
	}
	asked := contact.Asked{Tenant: tenant.Default.String(), Contact: ann, Channel: "email", Purpose: "news"}
	confirm := func() (bool, error) {
		return contact.ConfirmConsent(t.Context(), db.Pool(pgtest.App), nil, "", asked, []byte(`{"ip": "192.0.2.1"}`))
	}
	if _, err := confirm(); !errors.Is(err, contact.ErrNotFound) {
		t.Errorf("nobody has asked: %v", err)
	}
	same(t, "asked", say(t, db, ann, "email", contact.Pending), contact.Pending)
	link := links.Confirm(asked, time.Now().Add(time.Hour))
	if !strings.HasPrefix(link, "https://hooks.example.com/confirm/") {
		t.Errorf("the link is %s", link)
	}
	got, err := links.Confirmed(link, time.Now())
	same(t, "what the link says", got, asked)
	same(t, "no error", err, nil)
	if _, err := links.Confirmed(link, time.Now().Add(2*time.Hour)); !errors.Is(err, contact.ErrExpired) {
		t.Errorf("a link that has expired: %v", err)
	}
	if _, err := links.Confirmed(link[:len(link)-1], time.Now()); !errors.Is(err, contact.ErrForged) {
		t.Errorf("a link that was cut: %v", err)
	}
	news, err := confirm()
	same(t, "confirmed", fmt.Sprint(news, err), "true <nil>")
	news, err = confirm()
	same(t, "again", fmt.Sprint(news, err), "false <nil>")

	say(t, db, ann, "email", contact.Revoked)
	if _, err := confirm(); !errors.Is(err, contact.ErrConflict) {
		t.Errorf("revoked since: %v", err)
	}
	same(t, "asked again", say(t, db, ann, "email", contact.Pending), contact.Revoked)
	db.Broken()
	db.Exec(t, pgtest.Owner, `
		alter table deed.consents disable trigger consents_rewrite;
		update deed.consents set expires_at = now() - interval '1 second' where expires_at is not null;
		alter table deed.consents enable trigger consents_rewrite
	`)
	if _, err := confirm(); !errors.Is(err, contact.ErrConflict) || !strings.Contains(err.Error(), "seven days") {
		t.Errorf("after seven days: %v", err)
	}
}

// Where two that are merged differ, a revocation wins until a later grant; taken
// apart, each has its own again, and what was revoked since is revoked for both.
func TestMerge_Consents(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := upsert(t, db, known("email", "a@example.com"), known("email", "b@example.com"), known("email", "c@example.com"))
	a, b, c := list[0].ID, list[1].ID, list[2].ID
	state := func(of string) contact.State {
		t.Helper()
		now, err := contact.Consents(t.Context(), db.Pool(pgtest.App), of)
		if err != nil {
			t.Fatal(err)
		}
		if len(now) == 0 {
			return ""
		}
		return now[0].State
	}
	unmerge := func(of string) {
		t.Helper()
		if _, err := contact.Unmerge(t.Context(), db.Pool(pgtest.App), nil, of, why); err != nil {
			t.Fatal(err)
		}
	}
	say(t, db, b, "email", contact.Revoked)
	say(t, db, a, "email", contact.Granted) // later, but somebody else's word
	merge(t, db, a, b)
	same(t, "a into b", state(b), contact.Revoked)
	same(t, "asked for a", state(a), contact.Revoked)
	same(t, "suppressed", suppressed(t, db), "email:a@example.com/news email:b@example.com/news")
	unmerge(a)
	same(t, "apart", []contact.State{state(a), state(b)}, "[granted revoked]")
	same(t, "suppressed apart", suppressed(t, db), "email:b@example.com/news")

	merge(t, db, b, a)
	same(t, "b into a", state(a), contact.Revoked)
	say(t, db, a, "email", contact.Granted)
	same(t, "granted since", state(b), contact.Granted)
	same(t, "suppressed by nobody", suppressed(t, db), "")
	merge(t, db, a, c)
	same(t, "all into c", state(c), contact.Granted)
	unmerge(b)
	same(t, "b is its own again", []contact.State{state(b), state(c)}, "[revoked granted]")
	same(t, "suppressed without b", suppressed(t, db), "email:b@example.com/news")

	say(t, db, c, "email", contact.Revoked)
	same(t, "c and a", state(a), contact.Revoked)
	unmerge(a)
	same(t, "revoked for both", []contact.State{state(a), state(c)}, "[revoked revoked]")
	same(t, "all", suppressed(t, db), "email:a@example.com/news email:b@example.com/news email:c@example.com/news")
	say(t, db, a, "email", contact.Granted)
	same(t, "a alone", []contact.State{state(a), state(c)}, "[granted revoked]")
	same(t, "but a", suppressed(t, db), "email:b@example.com/news email:c@example.com/news")
}

// Words, addresses, merges and their undoing at once: in the end each address is
// suppressed exactly if its contact's word is that.
func TestConsents_Races(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(pgtest.App)
	var persons []contact.Person
	for i := range 5 {
		persons = append(persons, known("external_id", fmt.Sprint(i), "email", fmt.Sprintf("%d@example.com", i)))
	}
	list := upsert(t, db, persons...)
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for n := range 40 {
				a, b := list[rand.IntN(5)].ID, list[rand.IntN(5)].ID
				var err error
				switch rand.IntN(5) {
				case 0:
					_, err = contact.Merge(t.Context(), pool, nil, a, b, why)
				case 1:
					_, err = contact.Unmerge(t.Context(), pool, nil, a, why)
				case 2:
					_, err = contact.Upsert(t.Context(), pool, "", known("external_id", fmt.Sprint(rand.IntN(5)), "email", fmt.Sprintf("%d-%d@example.com", w, n)))
				default:
					word := contact.Word{Contact: a, Channel: "email", Purpose: "news", State: contact.Granted, Source: "form"}
					if rand.IntN(2) == 0 {
						word.State = contact.Revoked
					}
					_, err = contact.SetConsents(t.Context(), pool, "", word)
				}
				if err != nil && !errors.Is(err, contact.ErrConflict) && !isRetry(err) {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	wrong := pgtest.One[int](t, db.Pool(pgtest.Owner), `
		select count(*)
		from deed.contact_identities i
		left join lateral deed.consents_of(array[deed.contact_of(i.tenant_id, i.contact_id)]) s on true
		left join deed.suppressions x on x.channel = 'email' and x.address = i.value and x.purpose = 'news'
		where i.type = 'email' and (s.state is not distinct from 'revoked') <> (x.address is not null)
	`)
	same(t, "addresses suppressed wrongly, or not", wrong, 0)
}

// A transaction that began before a word was said does not pass it by: it is to be
// made again.
func TestConsents_RepeatableRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := upsert(t, db, known("external_id", "ann"))[0].ID
	bea := upsert(t, db, known("external_id", "bea", "email", "bea@example.com"))[0].ID
	before := func(then, what func(db contact.DB) error) {
		t.Helper()
		tx, err := db.Pool(pgtest.App).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(t.Context())
		pgtest.One[int](t, tx, `select count(*) from deed.contacts`)
		if err := then(db.Pool(pgtest.App)); err != nil {
			t.Fatal(err)
		}
		if err := what(tx); !isRetry(err) {
			t.Errorf("it went on: %v", err)
		}
	}
	address := func(a string) func(contact.DB) error {
		return func(db contact.DB) error {
			_, err := contact.Upsert(t.Context(), db, "", known("external_id", "ann", "email", a))
			return err
		}
	}
	word := func(s contact.State) func(contact.DB) error {
		return func(db contact.DB) error {
			_, err := contact.SetConsents(t.Context(), db, "", contact.Word{Contact: ann, Channel: "email", Purpose: "news", State: s, Source: "form"})
			return err
		}
	}
	join := func(db contact.DB) error { return second(contact.Merge(t.Context(), db, nil, bea, ann, why)) }
	before(word(contact.Revoked), address("ann@example.com"))
	before(address("ann@example.org"), word(contact.Revoked))
	before(word(contact.Granted), word(contact.Revoked))
	before(join, word(contact.Revoked))
	before(word(contact.Revoked), func(db contact.DB) error { return second(contact.Unmerge(t.Context(), db, nil, bea, why)) })
	same(t, "suppressed", suppressed(t, db), "email:ann@example.org/news email:bea@example.com/news")
}

// shared are pairs of contacts that are known by one address of a channel, as that is compared.
var shared = []struct {
	channel, address string
	pair             [2]contact.Person
}{
	{"chat", "4917012345678", [2]contact.Person{known("whatsapp", "+49 170 12345678"), known("chat", "4917012345678")}},
	{"chat", "4917012345678", [2]contact.Person{known("telegram", "4917012345678"), known("chat", "+4917012345678")}},
	{"chat", "t1:u1", [2]contact.Person{known("slack", "T1:U1"), known("chat", "t1:u1")}},
	{"social", "@ann@localhost", [2]contact.Person{known("mastodon", "@ann@localhost"), known("account", "@ann@localhost")}},
	{"social", "ann@localhost", [2]contact.Person{known("mastodon", "Ann@localhost"), known("account", "Ann@localhost")}},
}

// What several contacts are known by is suppressed for as long as one of them has revoked it, whatever the others say, and lifted
// once none has.
func TestContract_D11_AnAddressOfSeveralContacts(t *testing.T) {
	t.Parallel()
	for n, s := range shared {
		for i := range 2 {
			t.Run(fmt.Sprintf("%d of pair %d first", i+1, n+1), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				list := upsert(t, db, s.pair[i], s.pair[1-i])
				one, other := list[0].ID, list[1].ID
				held := func(of, purpose string, state contact.State, want ...string) {
					t.Helper()
					word := contact.Word{Contact: of, Channel: s.channel, Purpose: purpose, State: state, Source: "form"}
					if _, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "test", word); err != nil {
						t.Fatal(err)
					}
					for n, purpose := range want {
						want[n] = s.channel + ":" + s.address + "/" + purpose
					}
					same(t, fmt.Sprintf("%s %s", purpose, state), suppressed(t, db), strings.Join(want, " "))
				}
				held(one, "news", contact.Revoked, "news")
				held(other, "offers", contact.Revoked, "news", "offers")
				held(other, "news", contact.Revoked, "news", "offers")
				held(other, "news", contact.Granted, "news", "offers")
				held(one, "offers", contact.Granted, "news", "offers")
				held(other, "offers", contact.Granted, "news")
				held(one, "news", contact.Granted)
			})
		}
	}
}

// Who has revoked it can grant it again when another who is known by the address, and has not, was erased; what the
// other has revoked goes on under its mark, and what a person said of the address keeps no word of it.
func TestContract_D11_AnAddressOfOneWhoIsErased(t *testing.T) {
	t.Parallel()
	for n, s := range shared {
		for i := range 2 {
			t.Run(fmt.Sprintf("%d of pair %d is erased", i+1, n+1), func(t *testing.T) {
				t.Parallel()
				db := pgtest.New(t)
				list := upsert(t, db, s.pair[i], s.pair[1-i])
				gone, other := list[0].ID, list[1].ID
				said := func(of, purpose string, state contact.State) {
					t.Helper()
					word := contact.Word{Contact: of, Channel: s.channel, Purpose: purpose, State: state, Source: "form"}
					if _, err := contact.SetConsents(t.Context(), db.Pool(pgtest.App), "test", word); err != nil {
						t.Fatal(err)
					}
				}
				held := func(what, want string) {
					t.Helper()
					same(t, what, pgtest.One[string](t, db.Pool(pgtest.Owner), `
						select coalesce(string_agg(k.what || '/' || s.purpose, ' ' order by k.what, s.purpose), '')
						from deed.suppressions s, lateral (select case s.address when $2 then 'it' when deed.address_mark(s.tenant_id, $1, $2) then 'mark' else s.address end) k(what)
					`, s.channel, s.address), want)
				}
				db.Exec(t, pgtest.App, `select deed.suppress('`+s.channel+`', array['`+s.address+`'], 'canary', 'bob', p_purpose => 'surveys', p_expires_at => now() + interval '1 day')`)
				said(other, "news", contact.Revoked)
				said(other, "surveys", contact.Revoked)
				said(other, "both", contact.Revoked)
				said(gone, "both", contact.Revoked)
				said(gone, "offers", contact.Revoked)
				said(gone, "news", contact.Granted)
				held("before", "it/both it/news it/offers it/surveys")
				if _, err := contact.Erase(t.Context(), db.Pool(pgtest.App), nil, gone, why, contact.EraseOptions{}); err != nil {
					t.Fatal(err)
				}
				held("erased", "it/news it/surveys mark/both mark/offers")
				db.Exec(t, pgtest.App, `select deed.suppress('`+s.channel+`', array['`+s.address+`'], 'said later', 'bob', p_purpose => 'calls')`)
				eraseAll(t, db)
				held("once the erasure has ended", "it/news it/surveys mark/both mark/calls mark/offers")
				same(t, "what a person said", pgtest.One[int](t, db.Pool(pgtest.Owner), `
					select count(*) from (select kept_reason from deed.suppressions union all select reason from deed.suppressions union all select reason from deed.audit_log) r(reason) where reason = 'canary'`), 0)
				said(other, "news", contact.Granted)
				said(other, "surveys", contact.Granted)
				said(other, "both", contact.Granted)
				held("granted", "it/surveys mark/both mark/calls mark/offers")
			})
		}
	}
}

// eraseAll has all erasures end.
func eraseAll(t testing.TB, db *pgtest.DB) {
	t.Helper()
	if !pgtest.Wait(pgtest.Patience, func() bool {
		db.Exec(t, pgtest.Owner, `update deed.erasing set tried_at = null`)
		db.Exec(t, pgtest.Worker, `select deed.erase_step(100, 'w')`)
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select not exists (select from deed.erasing)`)
	}) {
		t.Fatal("the erasures do not end")
	}
}

// Whoever is revoking it while the other is erased has revoked it, and can grant it again.
func TestContract_D11_RevokedWhileAnotherIsErased(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const held = "chat:4917012345678/news"
	list := upsert(t, db, known("whatsapp", "+4917012345678"), known("telegram", "4917012345678"))
	gone, other := list[0].ID, list[1].ID
	say(t, db, gone, "chat", contact.Revoked)
	say(t, db, gone, "chat", contact.Granted)
	same(t, "of a number that two messengers know", suppressed(t, db), held)
	revoking := begin(t, db, pgtest.App)
	word := contact.Word{Contact: other, Channel: "chat", Purpose: "news", State: contact.Revoked, Source: "form"}
	if _, err := contact.SetConsents(t.Context(), revoking, "test", word); err != nil {
		t.Fatal(err)
	}
	if err := waits(t, db, func() error {
		_, err := contact.Erase(t.Context(), db.Pool(pgtest.App), nil, gone, why, contact.EraseOptions{})
		return err
	}, func() {
		if err := revoking.Commit(t.Context()); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	eraseAll(t, db)
	same(t, "erased", suppressed(t, db), held)
	say(t, db, other, "chat", contact.Granted)
	same(t, "granted", suppressed(t, db), "")
}

const (
	revokesByChat = `select deed.set_consents(array[i.contact_id], '{chat}', '{news}', '{revoked}', '{form}') from deed.contact_identities i where i.type = 'whatsapp' and $1::text <> ''`
	grantsByChat  = `select deed.set_consents(array[$1::text::uuid], '{chat}', '{news}', '{granted}', '{form}')`
)

// Who revokes while another who is known by the same address grants has revoked it: also where the other's transaction began before
// that, which is to be made again.
func TestContract_D11_RevokedWhileAnotherGrants(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const held = "chat:4917012345678/news"
	list := upsert(t, db, known("whatsapp", "+4917012345678"), known("chat", "4917012345678"))
	ann, other := list[0].ID, list[1].ID
	say(t, db, other, "chat", contact.Revoked)
	meanwhile(t, db, other, revokesByChat, grantsByChat)
	same(t, "at the same time", suppressed(t, db), held)

	say(t, db, other, "chat", contact.Revoked)
	say(t, db, ann, "chat", contact.Granted)
	tx, err := db.Pool(pgtest.App).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	pgtest.One[int](t, tx, `select count(*) from deed.contacts`)
	say(t, db, ann, "chat", contact.Revoked)
	if _, err := tx.Exec(t.Context(), grantsByChat, other); !isRetry(err) {
		t.Errorf("in a snapshot from before it went on: %v", err)
	}
	same(t, "in a snapshot from before", suppressed(t, db), held)
}
