package inbound_test

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
)

// known is a platform whose requests are lines "ID NAME…": the first name is who wrote,
// the others are what they are known by as well, as user ids.
type known struct{}

func (known) Read(_ *http.Request, body []byte, _ time.Time) (got inbound.Received, err error) {
	for line := range strings.Lines(string(body)) {
		names := strings.Fields(line)
		e := inbound.Event{ID: names[0], Body: json.RawMessage("{}")}
		for i, name := range names[1:] {
			kind := "whatsapp_user"
			if strings.Trim(name, "0123456789") == "" {
				kind = "whatsapp"
			}
			if i == 0 {
				e.Sender, e.Kind = name, kind
			} else {
				e.Also = append(e.Also, inbound.Identity{Kind: kind, Value: name})
			}
		}
		got.Events = append(got.Events, e)
	}
	return got, nil
}

func knownBy(t *testing.T, db *pgtest.DB, unknown inbound.Unknown) (url string) {
	t.Helper()
	url, _ = receive(t, db, db.NewPool(pgtest.Worker, 8), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": {
		Source: known{}, Unknown: unknown,
		Executor: func(context.Context, inbound.Message) (inbound.Result, error) { return inbound.Result{}, nil },
	}}})
	return url
}

// people is who is known by what, as "NAME+NAME: MESSAGES", the identities in order.
func people(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	return pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select coalesce(string_agg(p.names || ': ' || p.messages, ', ' order by p.names), '')
		from (
			select string_agg(i.value, '+' order by i.value) as names,
				(select coalesce(string_agg(m.platform_message_id, ' ' order by m.turn), '') from deed.channel_messages m where m.contact_id = i.contact_id) as messages
			from deed.contact_identities i
			group by i.contact_id
		) p`)
}

// One person who is known by several identities is one contact, whichever of them came
// first, and nobody is merged on the word of a platform.
func TestContract_D8_OneContactOfSeveralIdentities(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before  []string // who is known before, as "NAME+NAME"
		unknown inbound.Unknown
		posts   []string
		want    string
	}{
		"both at once":        {posts: []string{"1 491111111 US.1", "2 US.1", "3 491111111"}, want: "491111111+US.1: 1 2 3"},
		"the number first":    {posts: []string{"1 491111111", "2 491111111 US.1", "3 US.1"}, want: "491111111+US.1: 1 2 3"},
		"the user id first":   {posts: []string{"1 US.1", "2 491111111 US.1"}, want: "491111111+US.1: 1 2"},
		"in one request":      {posts: []string{"1 US.1\n2 491111111 US.1\n3 491111111"}, want: "491111111+US.1: 1 2 3"},
		"twice the same":      {posts: []string{"1 491111111 491111111 US.1 US.1"}, want: "491111111+US.1: 1"},
		"somebody else's":     {before: []string{"491111111", "US.1"}, posts: []string{"1 491111111 US.1", "2 US.1 491111111"}, want: "491111111: 1, US.1: 2"},
		"another's, denied":   {before: []string{"491111111", "US.1"}, unknown: inbound.DenyUnknown, posts: []string{"1 491111111 US.1"}, want: "491111111: 1, US.1: "},
		"two in one request":  {posts: []string{"1 491111111 US.1\n2 492222222 US.2"}, want: "491111111+US.1: 1, 492222222+US.2: 2"},
		"of several":          {before: []string{"US.1", "US.2"}, posts: []string{"1 491111111 US.1 US.2"}, want: "491111111: 1, US.1: , US.2: "},
		"of several, denied":  {before: []string{"US.1", "US.2"}, unknown: inbound.DenyUnknown, posts: []string{"1 491111111 US.1 US.2"}, want: "US.1: , US.2: "},
		"unknown, denied":     {unknown: inbound.DenyUnknown, posts: []string{"1 491111111 US.1"}, want: ""},
		"known by the other":  {before: []string{"US.1"}, unknown: inbound.DenyUnknown, posts: []string{"1 491111111 US.1", "2 491111111"}, want: "491111111+US.1: 1 2"},
		"known by the sender": {before: []string{"491111111"}, unknown: inbound.DenyUnknown, posts: []string{"1 491111111 US.1", "2 US.1"}, want: "491111111+US.1: 1 2"},
		"far too long":        {posts: []string{"1 " + strings.Repeat("\ufdfa", 80)}, want: ""},
		"no identity":         {posts: []string{"1 491111111 12", "2 491111111"}, want: "491111111: 1 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			for _, names := range c.before {
				db.Exec(t, pgtest.Worker, `
					select from deed.upsert_contacts(array(select 1 from unnest($1::text[])), array(select case when n ~ '^[0-9]+$' then 'whatsapp' else 'whatsapp_user' end from unnest($1::text[]) n), $1, array['{}'::jsonb])`,
					strings.Split(names, "+"))
			}
			url := knownBy(t, db, cmp.Or(c.unknown, inbound.Link))
			for _, p := range c.posts {
				want(t, p, post(t, url, p), 200)
			}
			want(t, "people", people(t, db), c.want)
			conflicts := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.identity_conflicts`)
			want(t, "conflicts", conflicts > 0, len(c.before) > 1)
			verified(t, db)
		})
	}
}

// Requests of one person that come at once, by whichever identity: one contact.
func TestContract_D8_SeveralIdentitiesAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	url := knownBy(t, db, inbound.Link)
	var sending sync.WaitGroup
	for i, names := range []string{"491111111 US.1", "US.1 491111111", "491111111 US.1", "US.1 491111111", "491111111 US.1", "US.1 491111111"} {
		sending.Go(func() { bring(t, url, string(rune('a'+i))+" "+names) })
	}
	sending.Wait()
	want(t, "people", strings.Contains(people(t, db), ","), false)
	want(t, "messages", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(distinct contact_id)::int * 100 + count(*)::int from deed.channel_messages where status = 'executed'`), 106)
	verified(t, db)
}

// Who has as many identities as anybody may have writes to us all the same.
func TestContract_D8_OneIdentityTooMany(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Worker, `
		select from deed.upsert_contacts(array_fill(1, array[100]), array_fill('whatsapp'::text, array[100]), array(select '4911111' || i from generate_series(100, 199) i), array['{}'::jsonb])`)
	url := knownBy(t, db, inbound.Link)
	for _, line := range []string{"1 4911111100 US.1", "2 US.2 4911111101", "3 4911111100"} {
		want(t, line, post(t, url, line), 200)
	}
	whose := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(m.status || ' ' || (select count(*) from deed.contact_identities i where i.contact_id = m.contact_id), ', ' order by m.turn) from deed.channel_messages m`)
	want(t, "messages, and what their contacts have", whose, "executed 100, executed 1, executed 100")
	verified(t, db)
}

// What somebody revoked holds for what they turn out to be known by, too.
func TestContract_D8_ARevocationHoldsForTheOtherIdentity(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	url := knownBy(t, db, inbound.Link)
	want(t, "answered", post(t, url, "1 491111111"), 200)
	id := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.channel_messages`)
	if _, err := contact.SetConsents(t.Context(), db.Pool(pgtest.Worker), "ann", contact.Word{Contact: id, Channel: "chat", Purpose: "news", State: contact.Revoked, Source: "test"}); err != nil {
		t.Fatal(err)
	}
	want(t, "answered", post(t, url, "2 491111111 US.1"), 200)
	suppressed := pgtest.One[string](t, db.Pool(pgtest.Owner), `select coalesce(string_agg(address || ' ' || purpose, ', ' order by address), '') from deed.suppressions`)
	want(t, "suppressed", suppressed, "491111111 news, us.1 news")
}
