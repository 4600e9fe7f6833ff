package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/sqlstate"
)

// couple are two contacts who are taken for one for a while, or until they are erased.
type couple struct {
	ids    [2]string
	names  [2]string
	erased bool

	mu    sync.RWMutex
	gone  bool      // guarded by mu: nobody imports or writes to them any more
	since time.Time // guarded by mu: since when what one of them has revoked holds for both
}

// Contacts are merged and taken apart, revoke and are erased while others import them and write
// to them: nobody is called for what either of two who are one has revoked, by whatever address;
// of the erased nothing is left, and of the others nothing is lost.
func TestContract_D11_MergedBesideEverything(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	app, owner := db.Pool(pgtest.App), db.Pool(pgtest.Owner)
	why := audit.Act{By: "op", Reason: "a test"}
	as := func(name string) contact.Person {
		return contact.Person{Identities: []contact.Identity{mail(name + "@example.com"), {Type: "external_id", Value: name}}}
	}
	list := make([]*couple, 12)
	for i := range list {
		c := &couple{erased: i%3 == 0}
		for k := range c.names {
			if c.names[k] = fmt.Sprintf("stays%d-%d", i, k); c.erased {
				c.names[k] = fmt.Sprintf("zqcanary%d-%d", i, k)
			}
			made, err := contact.Upsert(ctx, app, "test", as(c.names[k]))
			if err != nil {
				t.Fatal(err)
			}
			c.ids[k] = made[0].ID
		}
		list[i] = c
	}
	f := newFake()
	l, stop := run(t, db, fast(f))
	eventually(t, "the provider", func() bool { return pgtest.One[bool](t, owner, `select exists (select from deed.providers)`) })

	var acts, others sync.WaitGroup
	end := make(chan struct{})
	beside := func(do func(c *couple, k, n int) error) {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				c, k := list[rand.IntN(len(list))], rand.IntN(2)
				c.mu.RLock()
				if !c.gone {
					if err := do(c, k, n); err != nil && !sqlstate.Again(err) {
						t.Error(err)
					}
				}
				c.mu.RUnlock()
			}
		})
	}
	beside(func(c *couple, k, n int) error {
		p := as(c.names[k])
		if n%4 == 0 { // an address that is new, once, and whose it is by then stays so
			p.Identities = append(p.Identities, mail(c.names[k]+"-late@example.com"))
		}
		_, err := contact.Upsert(ctx, app, "import", p)
		return err
	})
	for w := range 2 {
		beside(func(c *couple, k, n int) error {
			key := fmt.Sprint(w, n)
			to := c.names[k] + "@example.com"
			news, named, plain := email(to, "news", key), email("elsewhere@example.com", "named", key, c.names[k]), email(to, "plain", key)
			news.Purpose, named.Purpose, named.Contact = "news", "news", c.ids[k]
			_, err := delivery.Reserve(ctx, app, news, named, plain)
			return err
		})
	}
	for i, c := range list {
		acts.Go(func() {
			merge := func() error {
				_, err := contact.Merge(ctx, app, nil, c.ids[i%2], c.ids[1-i%2], why)
				return err
			}
			unmerge := func() error { _, err := contact.Unmerge(ctx, app, nil, c.ids[i%2], why); return err }
			revoke := func() error {
				_, err := contact.SetConsents(ctx, app, "test", contact.Word{Contact: c.ids[rand.IntN(2)], Channel: "email", Purpose: "news", State: contact.Revoked, Source: "form"})
				return err
			}
			steps := []func() error{merge, unmerge, merge, revoke}
			if i%4 < 2 { // before they are one: then it holds for as long as they are
				steps = []func() error{merge, unmerge, revoke, merge}
			}
			for _, step := range steps {
				for again := true; again; {
					err := step()
					if again = sqlstate.Again(err); err != nil && !again {
						t.Error(err)
					}
				}
			}
			at := pgtest.One[time.Time](t, owner, `select clock_timestamp()`)
			c.mu.Lock()
			c.since, c.gone = at, c.erased
			c.mu.Unlock()
			if c.erased {
				for again := true; again; {
					_, err := contact.Erase(ctx, app, nil, c.ids[0], why, contact.EraseOptions{})
					if again = sqlstate.Again(err); err != nil && !again {
						t.Error(err)
					}
				}
			}
		})
	}
	acts.Wait()
	many := pgtest.One[int](t, owner, `select count(*)::int from deed.channel_outbox`)
	eventually(t, "some more deliveries", func() bool {
		return pgtest.One[int](t, owner, `select count(*)::int from deed.channel_outbox`) > many+200
	})
	close(end)
	others.Wait()
	drained(t, l)
	stop()
	erased(t, db, 1000)
	for i, c := range list {
		for _, id := range rowsOf(t, owner, `
			select c.id::text from deed.channel_outbox c
			where c.purpose = 'news' and c.first_called_at > $1 and (c.contact_id = any ($2::text[]::uuid[]) or split_part(c.recipient, '@', 1) = any ($3))`,
			c.since, c.ids[:], c.names[:]) {
			t.Errorf("couple %d: called after it had been revoked for both: %+v", i, entry(t, db, id))
		}
		if c.erased {
			continue
		}
		if _, err := contact.Unmerge(ctx, app, nil, c.ids[i%2], why); err != nil && !errors.Is(err, contact.ErrConflict) {
			t.Error(err)
		}
		for k, name := range c.names {
			got := rowsOf(t, owner, `select distinct contact_id::text from deed.contact_identities where value in ($1, $1 || '@example.com')`, name)
			if len(got) != 1 || got[0] != c.ids[k] {
				t.Errorf("%s is %v, was %s", name, got, c.ids[k])
			}
		}
	}
	if n := pgtest.One[int](t, owner, `select count(*)::int from deed.channel_outbox where purpose = '' and status <> 'sent' and erased_at is null`); n != 0 {
		t.Errorf("%d of what has no purpose were not sent", n)
	}
	if _, repeats := f.acceptances(); repeats != 0 {
		t.Errorf("%d were sent twice", repeats)
	}
	if found := traces(t, db, "zqcanary"); len(found) > 0 {
		t.Errorf("left in %v", found)
	}
	if n := pgtest.One[int](t, owner, `select count(*)::int from deed.verify()`); n != 0 {
		t.Errorf("deed.verify finds %d", n)
	}
}
