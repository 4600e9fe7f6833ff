package metrics_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/server/metrics"
)

// took makes n deliveries that provider took within the last twenty hours, of which the
// first have bounced and as many others as is said were complained about.
func took(t *testing.T, db *pgtest.DB, provider string, n, bounced, complained int) {
	t.Helper()
	db.Exec(t, pgtest.Owner, `
		with quiet as (select set_config('session_replication_role', 'replica', true)),
		made as (
		  insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, lane, recipient, payload, status, created_at, updated_at, finished_at, sent_at)
		  select gen_random_uuid(), '00000000-0000-0000-0000-000000000000', sha256(convert_to($1 || n, 'UTF8')), 'email', $1, 'x', n || '@a.example', '{}', 'sent', w.at, w.at, w.at, w.at
		  from quiet cross join generate_series(1, $2::int) n cross join lateral (select now() - n * interval '20 hours' / $2 as at) w
		  returning id, tenant_id, finished_at, split_part(recipient, '@', 1)::int as n
		)
		insert into deed.delivery_feedback (delivery_id, tenant_id, delivered_at, bounced_at, bounce, bounce_since, complained_at)
		select id, tenant_id, finished_at, b.at, case when b.at is not null then 'hard' end, b.at, case when n > $2 - $4 then finished_at end
		from made cross join lateral (select case when n <= $3 then finished_at end as at) b`, provider, n, bounced, complained)
	db.Broken() // nothing recorded how they were sent
}

// The rules of alerts.yaml, as they are written, over what a scrape says: 6 % of bounces and
// 0.2 % of complaints fire, 4 % and 0.05 % do not, nor does a single one of a few.
func TestAlerts_RatesOfBouncesAndComplaints(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	took(t, db, "bounces-6", 200, 12, 0)
	took(t, db, "bounces-4", 200, 8, 0)
	took(t, db, "bounces-few", 20, 3, 0)
	took(t, db, "complaints-0.2", 10000, 0, 20)
	took(t, db, "complaints-0.05", 10000, 0, 5)
	took(t, db, "complaints-few", 200, 0, 2)
	l, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{Deadline: pgtest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	_, scrape := start(t, db, nil, metrics.Options{Ledger: l})
	wantLines(t, scrape, `deed_provider_messages{provider="complaints-0.05",state="accepted",window="day"} 10000`)
	said := scrape()
	for alert, want := range map[string][]string{"DeedBounceRate": {"bounces-6"}, "DeedComplaintRate": {"complaints-0.2"}} {
		e := expression{t: t, words: wordsOf(ruleOf(t, alert)), said: said}
		var got []string
		for name := range e.and() {
			got = append(got, name)
		}
		if e.next() != "" {
			t.Fatalf("%s: what is at %q is not read here", alert, e.words)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s fires for %v, want %v", alert, got, want)
		}
	}
}

// ruleOf is an alert's expression.
func ruleOf(t *testing.T, alert string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == alert {
				return r.Expr
			}
		}
	}
	t.Fatalf("there is no alert %s", alert)
	return ""
}

// expression reads as much of PromQL as the rules of rates have, and nothing else: maxima by
// provider, one number times them, comparisons, and `and`.
type expression struct {
	t     *testing.T
	words []string
	said  string // by a scrape
}

// series are values by provider; a number is one of the provider "".
type series map[string]float64

func wordsOf(text string) []string {
	for _, sign := range []string{"(", ")", "{", "}", ",", "*"} {
		text = strings.ReplaceAll(text, sign, " "+sign+" ")
	}
	return strings.Fields(text)
}

func (e *expression) next() string {
	if len(e.words) == 0 {
		return ""
	}
	return e.words[0]
}

// take reads what must stand there.
func (e *expression) take(words ...string) {
	e.t.Helper()
	for _, w := range words {
		if e.next() != w {
			e.t.Fatalf("want %q at %q", w, e.words)
		}
		e.words = e.words[1:]
	}
}

func (e *expression) and() series {
	all := e.comparison()
	for e.next() == "and" {
		e.take("and")
		right := e.comparison()
		for name := range all {
			if _, both := right[name]; !both {
				delete(all, name)
			}
		}
	}
	return all
}

func (e *expression) comparison() series {
	left, sign := e.product(), e.next()
	e.take(sign)
	right, kept := e.product(), series{}
	for name, v := range left {
		bound, ok := right[name]
		if number, is := right[""]; is {
			bound, ok = number, true
		}
		holds := map[string]bool{">": v > bound, ">=": v >= bound}
		if _, known := holds[sign]; !known {
			e.t.Fatalf("%q is not read here", sign)
		}
		if ok && holds[sign] {
			kept[name] = v
		}
	}
	return kept
}

func (e *expression) product() series {
	left := e.operand()
	number, is := left[""]
	if !is || e.next() != "*" {
		return left
	}
	e.take("*")
	right := e.operand()
	for name := range right {
		right[name] *= number
	}
	return right
}

func (e *expression) operand() series {
	if number, err := strconv.ParseFloat(e.next(), 64); err == nil {
		e.take(e.next())
		return series{"": number}
	}
	e.take("max", "by", "(", "provider", ")", "(")
	name := e.next()
	e.take(name, "{")
	var wanted []string
	for ; e.next() != "}"; e.take(e.next()) {
		if e.next() != "," {
			wanted = append(wanted, e.next())
		}
	}
	e.take("}", ")")
	found := series{}
	for _, line := range regexp.MustCompile(`(?m)^`+name+`\{(.*)\} (.*)$`).FindAllStringSubmatch(e.said, -1) {
		labels := strings.Split(line[1], ",")
		if slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(labels, w) }) {
			continue
		}
		value, err := strconv.ParseFloat(line[2], 64)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, l := range labels {
			if provider, is := strings.CutPrefix(l, "provider="); is {
				provider = strings.Trim(provider, `"`)
				found[provider] = max(found[provider], value)
			}
		}
	}
	if len(found) == 0 {
		e.t.Fatalf("a scrape has no %s with %s", name, wanted)
	}
	return found
}
