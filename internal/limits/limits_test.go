package limits_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// What Go lets pass the schema takes, to the last microsecond. It has no upper
// bound for a subscription's attempts.
func TestRanges_AreTheSchemas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "test", "p")
	db.Exec(t, pgtest.Owner, `
		insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, created_at, updated_at)
		values (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256('x'), 'email', 'p', 'x.example', 'a@x.example', '{}', clock_timestamp(), now())`)
	takes := func(sql string, value any) bool {
		tx, err := db.Pool(pgtest.Owner).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		tag, err := tx.Exec(t.Context(), sql, value)
		if err == nil && tag.RowsAffected() != 1 {
			t.Fatalf("%s: %s", sql, tag)
		}
		return err == nil
	}
	const (
		subscription = `update deed.subscriptions set max_attempts = $1 where id = 0`
		delivery     = `update deed.channel_outbox set max_attempts = $1`
		topic        = `select deed.check_topic('t', 'stream', $1, '1 day')`
	)
	for _, c := range []struct {
		sql   string
		value int
		want  bool
	}{
		{subscription, limits.Attempts.Least - 1, false},
		{subscription, limits.Attempts.Least, true},
		{subscription, limits.Attempts.Most, true},
		{delivery, limits.Attempts.Least - 1, false},
		{delivery, limits.Attempts.Least, true},
		{delivery, limits.Attempts.Most, true},
		{delivery, limits.Attempts.Most + 1, false},
		{topic, limits.Lanes.Least - 1, false},
		{topic, limits.Lanes.Least, true},
		{topic, limits.Lanes.Most, true},
		{topic, limits.Lanes.Most + 1, false},
	} {
		if takes(c.sql, c.value) != c.want {
			t.Errorf("%s with %d is taken: %t", c.sql, c.value, !c.want)
		}
	}
	for column, r := range map[string]limits.Range[time.Duration]{"lease": limits.Lease, "backoff": limits.Backoff} {
		sql := `update deed.subscriptions set ` + column + ` = $1::bigint * interval '1 microsecond' where id = 0`
		for value, want := range map[time.Duration]bool{
			r.Least - time.Microsecond: false, r.Least: true, r.Most: true, r.Most + time.Microsecond: false,
		} {
			if takes(sql, value.Microseconds()) != want {
				t.Errorf("a %s of %s is taken: %t", column, value, !want)
			}
		}
	}
}

// The database writes the rules for names as regular expressions, in constraints
// and functions; all of them are Go's.
func TestNames_AreTheSchemas(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const topic, name = `^[A-Za-z0-9._:/-]{1,200}$`, `^[A-Za-z0-9._-]{1,100}$`
	rows, err := db.Pool(pgtest.Owner).Query(t.Context(), `
		select distinct m[1]
		from (
		  select prosrc from pg_proc where pronamespace = 'deed'::regnamespace
		  union all
		  select pg_get_constraintdef(oid) from pg_constraint where connamespace = 'deed'::regnamespace
		) s(text),
		regexp_matches(text, '''(\^\[A-Za-z0-9[^'']*)''', 'g') m`)
	if err != nil {
		t.Fatal(err)
	}
	patterns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	slices.Sort(patterns)
	if want := []string{name, topic}; err != nil || !slices.Equal(patterns, want) {
		t.Errorf("the schema's rules are %q, %v; want %q", patterns, err, want)
	}
	texts := []string{"", strings.Repeat("a", 100), strings.Repeat("a", 101), strings.Repeat("a", 200), strings.Repeat("a", 201), "ä", "a\n"}
	for c := range 256 {
		texts = append(texts, string(rune(c)), "a"+string(rune(c)))
	}
	for _, text := range texts {
		if err, want := limits.Topic(text), regexp.MustCompile(topic).MatchString(text); (err == nil) != want {
			t.Errorf("as a topic's name %q is taken: %t (%v)", text, !want, err)
		}
		if err, want := limits.Name("sink", text), regexp.MustCompile(name).MatchString(text); (err == nil) != want {
			t.Errorf("as a sink's name %q is taken: %t (%v)", text, !want, err)
		}
	}
}
