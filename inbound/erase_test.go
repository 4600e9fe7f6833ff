package inbound_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// traces are the tables that have the word in any column of any row.
func traces(t testing.TB, db *pgtest.DB, word string) (found []string) {
	t.Helper()
	owner := db.Pool(pgtest.Owner)
	for _, table := range strings.Fields(pgtest.One[string](t, owner, `
		select string_agg(c.oid::regclass::text, ' ') from pg_class c
		where c.relnamespace = 'deed'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition`)) {
		if pgtest.One[bool](t, owner, `select exists (select from `+table+` r where strpos(r::text, $1) > 0 or strpos(r::text, encode($1::bytea, 'hex')) > 0)`, word) {
			found = append(found, table)
		}
	}
	return found
}

func eraseAnn(t testing.TB, db *pgtest.DB) {
	t.Helper()
	of := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = 'canary'`)
	if _, err := contact.Erase(t.Context(), db.Pool(pgtest.App), nil, of, act("asked for on paper"), contact.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the erasure to end", func() bool {
		for pgtest.One[int64](t, db.Pool(pgtest.Worker), `select deed.erase_step(1000, 'keeper')`) > 0 {
		}
		return !pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from deed.erasing)`)
	})
}

// Of somebody who was erased nothing that they wrote is left, in whatever state it was:
// ended, failed, held, waiting for its turn, or in somebody's hand; and nothing of it is run
// again. What others wrote stays.
func TestContract_D12_InboundMessages(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	began, let := make(chan struct{}), make(chan struct{})
	attempts := map[string]int{}
	url, _ := one(t, db, func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		attempts[m.PlatformID]++
		switch m.PlatformID {
		case "2":
			return inbound.Result{}, errors.New("550 canary@example.com")
		case "wamid.canary3":
			close(began)
			<-let
			return inbound.Say("hello " + m.Sender), nil
		}
		return inbound.Say("hello " + m.Sender), nil
	})
	want(t, "one", post(t, url, "1 canary canary-text"), 200)
	want(t, "two", post(t, url, "2 canary canary-text"), 500)
	want(t, "another's", post(t, url, "9 bob hello"), 200)
	done := make(chan int, 2)
	go func() { done <- post(t, url, "wamid.canary3 canary canary-text") }()
	<-began
	go func() { done <- post(t, url, "4 canary canary-text") }()
	eventually(t, "the fourth to wait", func() bool { return strings.Contains(state(t, db), "4 accepted") })
	if len(traces(t, db, "canary")) < 3 {
		t.Fatalf("the canary is where it should be: %v", traces(t, db, "canary"))
	}
	eraseAnn(t, db)
	close(let)
	<-done
	<-done
	// A request that has waited for long is answered before its message has ended.
	eventually(t, "all to end", func() bool { return !strings.Contains(state(t, db), "accepted") })
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v: %s", found, pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(c::text, '; ') from deed.channel_outbox c`))
	}
	got := state(t, db)
	if !strings.HasPrefix(got, "1 executed x1 r1, 2 denied_erased x1 r0, 9 executed x1 r1, sha256:") || !strings.HasSuffix(got, "4 denied_erased x0 r0") {
		t.Errorf("messages: %s", got)
	}
	// The platform repeats what it had sent: nothing of it is run.
	for _, body := range []string{"1 canary canary-text", "2 canary canary-text", "wamid.canary3 canary canary-text", "4 canary canary-text"} {
		want(t, "repeated "+body, post(t, url, body), 200)
	}
	want(t, "after repeats", state(t, db), got)
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left after repeats in %v", found)
	}
	if text := pgtest.One[string](t, db.Pool(pgtest.Owner), `select text from deed.channel_messages where platform_message_id = '9'`); text != "hello" {
		t.Errorf("another's message: %q", text)
	}
	verified(t, db)
}

// An erasure and the end of a message wait for each other in one order, so that neither is
// ended as a deadlock.
func TestErase_BesideTheEndOfAMessage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	db.Exec(t, pgtest.Worker, `select deed.accept_messages('plain', array['1'], array['telegram'], array['canary'], array[''], array[''], array['{}'], '', 'link',
		'00000000-0000-0000-0000-000000000000', 'w')`)
	db.Exec(t, pgtest.Worker, `select deed.claim_messages('plain', 1, '1 minute', 10, 'w')`)
	ending, err := db.Pool(pgtest.Worker).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ending.Rollback(context.Background()) }()
	of := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.channel_messages`)
	if _, err := ending.Exec(t.Context(), `select deed.finish_messages(array[id], array[claim], array['executed'], array[null], array[null]::float8[], 10, 'w') from deed.channel_messages`); err != nil {
		t.Fatal(err)
	}
	erased := make(chan error, 1)
	go func() {
		_, err := contact.Erase(context.Background(), db.NewPool(pgtest.App, 1), nil, of, act("asked for on paper"), contact.EraseOptions{})
		erased <- err
	}()
	eventually(t, "the erasure to wait", func() bool {
		return pgtest.One[bool](t, db.Pool(pgtest.Owner), `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')`)
	})
	_, err = delivery.ReserveFor(t.Context(), ending, tenant.ID{}, delivery.Delivery{
		Channel: delivery.Webhook, Provider: "hook", Recipient: "https://example.com/", Payload: []byte(`{}`), Key: delivery.NewKey("1"), Contact: of,
	})
	if err = errors.Join(err, ending.Commit(t.Context())); err != nil {
		t.Errorf("the end of the message: %v", err)
	}
	if err := <-erased; err != nil {
		t.Errorf("the erasure: %v", err)
	}
	want(t, "messages", state(t, db), "1 executed x1 r0")
	verified(t, db)
}

// What is being run while its sender is erased ends as that, and what it would have written
// with its outcome is not: neither a reply, nor a message with what was said, nor a row of
// the service's.
func TestContract_D12_WhatIsBeingRunWritesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, pgtest.Owner, `create table public.said (text text)`)
	db.Exec(t, pgtest.Owner, `grant insert on public.said to deed_worker`)
	began, let := make(chan struct{}, 8), make(chan struct{})
	wait := func() {
		began <- struct{}{}
		<-let
	}
	url, _ := one(t, db, func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		if m.Text == "write canary" {
			return inbound.Result{InTx: func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `insert into public.said (text) values ($1)`, m.Sender)
				wait()
				return err
			}}, nil
		}
		wait()
		switch m.Text {
		case "publish canary":
			return inbound.Result{Publish: []deed.Message{{Topic: "said", Payload: m.Body}}}, nil
		case "fail canary":
			return inbound.Result{}, errors.New("550 canary@example.com")
		case "deny canary":
			return inbound.Deny("rude"), nil
		}
		return inbound.Say(m.Text), nil
	})
	words := []string{"say canary", "publish canary", "write canary", "fail canary", "deny canary"}
	var posts sync.WaitGroup
	for i, text := range append(words, "hello") {
		posts.Go(func() { want(t, text, post(t, url, fmt.Sprintf("%d sender%d %s", i, i, text)), 200) })
		<-began // in their order
	}
	for i := range words {
		of := pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = 'sender' || $1::int`, i)
		if _, err := contact.Erase(t.Context(), db.Pool(pgtest.App), nil, of, act("asked for on paper"), contact.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	close(let)
	posts.Wait()
	want(t, "messages", state(t, db), "0 denied_erased x1 r0, 1 denied_erased x1 r0, 2 denied_erased x1 r0, 3 denied_erased x1 r0, 4 denied_rude x1 r0, 5 executed x1 r1")
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	want(t, "rows of the service", pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from public.said`), 0)
	verified(t, db)
}

// What somebody wrote while they were taken for another is theirs, and goes with them.
func TestContract_D12_WrittenWhileMerged(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	url, _ := one(t, db, echo)
	want(t, "one", post(t, url, "1 canary hello"), 200)
	want(t, "two", post(t, url, "2 bob hello"), 200)
	app := db.Pool(pgtest.App)
	of := func(who string) string {
		return pgtest.One[string](t, db.Pool(pgtest.Owner), `select contact_id::text from deed.contact_identities where value = $1`, who)
	}
	if _, err := contact.Merge(t.Context(), app, nil, of("canary"), of("bob"), act("one person")); err != nil {
		t.Fatal(err)
	}
	want(t, "merged", post(t, url, "3 canary canary-text"), 200)
	want(t, "the other's", post(t, url, "4 bob hello"), 200)
	if _, err := contact.Unmerge(t.Context(), app, nil, of("canary"), act("two persons")); err != nil {
		t.Fatal(err)
	}
	whose := pgtest.One[string](t, db.Pool(pgtest.Owner), `
		select string_agg(concat_ws(' ', m.platform_message_id, m.contact_id = $1::text::uuid, c.contact_id = $1::text::uuid), ', ' order by m.turn)
		from deed.channel_messages m join deed.channel_outbox c on c.channel_message_id = m.id`, of("canary"))
	want(t, "whose they are, and the answers", whose, "1 t t, 2 f f, 3 t t, 4 f f")
	eraseAnn(t, db)
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	if text := pgtest.One[string](t, db.Pool(pgtest.Owner), `select string_agg(text, ' ') from deed.channel_messages`); text != "hello hello" {
		t.Errorf("the other's messages: %q", text)
	}
	verified(t, db)
}

// Somebody who is not known and is to be denied leaves nothing but a mark.
func TestContract_D12_WhoIsDeniedLeavesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "hook")
	s := source(echo)
	s.Unknown = inbound.DenyUnknown
	sum := sha256.Sum256([]byte("wamid.canary"))
	hashed := "sha256:" + hex.EncodeToString(sum[:])
	url, _ := receive(t, db, db.NewPool(pgtest.Worker, 4), inbound.Options{Sources: map[string]inbound.SourceOptions{"plain": s}})
	want(t, "unknown", post(t, url, "1 canary canary"), 200)
	for range 2 {
		want(t, "unknown", post(t, url, "wamid.canary canary canary"), 200)
	}
	want(t, "messages", state(t, db), "1 denied_unknown_sender x0 r0, "+hashed+" denied_unknown_sender x0 r0")
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	if _, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", contact.Person{Identities: []contact.Identity{{Type: "telegram", Value: "canary"}}}); err != nil {
		t.Fatal(err)
	}
	want(t, "known", post(t, url, "2 canary hello"), 200)
	want(t, "messages", state(t, db), "1 denied_unknown_sender x0 r0, "+hashed+" denied_unknown_sender x0 r0, 2 executed x1 r1")
	verified(t, db)
}

// What is older than its time goes; what a delivery names is emptied, and goes after it.
func TestPurge(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	url, _ := one(t, db, func(_ context.Context, m inbound.Message) (inbound.Result, error) {
		if m.Text == "quiet" {
			return inbound.Result{}, nil
		}
		return inbound.Say("hello"), nil
	})
	for _, body := range []string{"1 ann canary", "2 ann quiet", "3 ann young"} {
		want(t, body, post(t, url, body), 200)
	}
	purge := func() int {
		return pgtest.One[int](t, db.Pool(pgtest.Worker), `select deed.purge_messages('8 days', 100, 'w')`)
	}
	want(t, "none is old", purge(), 0)
	db.Exec(t, pgtest.Owner, `update deed.channel_messages set received_at = received_at - interval '9 days' where platform_message_id <> '3'`)
	want(t, "two are old", purge(), 2)
	want(t, "messages", state(t, db), "1 executed x1 r1, 3 executed x1 r1")
	if found := traces(t, db, "canary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	want(t, "at once again", purge(), 0)
	db.Exec(t, pgtest.Owner, `update deed.channel_messages set emptied_at = emptied_at - interval '9 days' where emptied_at is not null`)
	want(t, "still named", purge(), 1)
	db.Exec(t, pgtest.Owner, `update deed.channel_messages set emptied_at = emptied_at - interval '9 days' where emptied_at is not null`)
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set channel_message_id = null`)
	want(t, "no longer", purge(), 1)
	want(t, "messages", state(t, db), "3 executed x1 r0")
	verified(t, db)
	if _, err := db.Pool(pgtest.Worker).Exec(t.Context(), `select deed.purge_messages('7 days', 100, 'w')`); err == nil {
		t.Error("purged after 7 days, while platforms repeat")
	}
	if _, err := inbound.New(t.Context(), db.Pool(pgtest.Worker), inbound.Options{Retention: 24 * time.Hour}); err == nil {
		t.Error("a retention of a day")
	}
}
