package delivery_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// Keys are the same on every platform and in SQL; vectors.json is the standard
// that other implementations compare with.
func TestContract_D2_KeyVectors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/key_vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Parts []string `json:"parts"`
		Key   string   `json:"key"`
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) < 6 {
		t.Fatal(len(vectors), err)
	}
	db := pgtest.New(t)
	for _, v := range vectors {
		if got := delivery.NewKey(v.Parts...).String(); got != v.Key {
			t.Errorf("NewKey(%q) is %s, want %s", v.Parts, got, v.Key)
		}
		got := pgtest.One[string](t, db.Pool(pgtest.App), `select encode(deed.idempotency_key(variadic $1::text[]), 'hex')`, v.Parts)
		if got != v.Key {
			t.Errorf("deed.idempotency_key(%q) is %s, want %s", v.Parts, got, v.Key)
		}
	}
	at := time.Date(2026, 1, 2, 4, 4, 5, 6789, time.FixedZone("", 3600))
	part := "2026-01-02T03:04:05.000006Z"
	if delivery.EmailKey("run", "lead", "asset", at) != delivery.NewKey("run", "lead", "asset", part) ||
		delivery.VoiceKey("run", "lead", "v1", at) != delivery.NewKey("run", "lead", "v1", part) ||
		delivery.SocialKey("run", "post", "x", at) != delivery.NewKey("run", "post", "x", part) ||
		delivery.ReplyKey("m", "1") != delivery.NewKey("m", "1") {
		t.Error("a key is not of the parts that the contract names")
	}
	if delivery.NewKey("ab", "c") == delivery.NewKey("a", "bc") || delivery.NewKey("a") == delivery.NewKey("a", "") {
		t.Error("two lists of parts read the same")
	}
}

// A part that is null, or a key of no parts at all, would be the key of many
// different deliveries: the first would be sent, the others come back as
// duplicates. It is refused, by the number of the part; Go's key of no parts is
// the zero key, which a reservation refuses.
func TestContract_D2_ANullPartIsRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for call, want := range map[string]string{
		`deed.idempotency_key('run', null, 'x')`:         "part 2 is null",
		`deed.idempotency_key(null)`:                     "part 1 is null",
		`deed.idempotency_key('run', 'x', null, null)`:   "part 3 is null",
		`deed.idempotency_key(variadic null::text[])`:    "no parts",
		`deed.idempotency_key(variadic array[]::text[])`: "no parts",
	} {
		_, err := db.Pool(pgtest.App).Exec(context.Background(), `select `+call)
		if sqlState(err) != "DDARG" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want DDARG and %q", call, err, want)
		}
	}
	if delivery.NewKey() != (delivery.Key{}) {
		t.Error("a key of no parts is a key")
	}
}

// A key that was used makes no second row and no second call, in the same
// batch, a later one or another transaction's; workspaces and tenants apart.
func TestContract_D2_ADuplicateMakesNoRow(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	first := reserve(t, db, email("a@example.com"), email("b@example.com"), email("a@example.com"))
	if first[0].Duplicate == first[2].Duplicate || first[1].Duplicate || first[0].ID != first[2].ID {
		t.Errorf("a key twice in one batch: %+v", first)
	}
	again := reserve(t, db, email("c@example.com"), email("b@example.com"))
	if again[0].Duplicate || !again[1].Duplicate || again[1].ID != first[1].ID || again[1].Status != delivery.Queued {
		t.Errorf("a key of an earlier batch: %+v", again)
	}
	other := email("b@example.com")
	other.Workspace = tenant.ID{7}
	if r := reserve(t, db, other); r[0].Duplicate {
		t.Error("another workspace's key counts as a duplicate")
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
	for _, sql := range []string{
		`insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, created_at, updated_at, payload)
		 select gen_random_uuid(), tenant_id, idempotency_key, channel, provider, now(), now(), '{}' from deed.channel_outbox limit 1`,
		`insert into deed.channel_outbox (id, tenant_id, idempotency_key, channel, provider, created_at, updated_at, payload)
		 values (gen_random_uuid(), '00000000-0000-0000-0000-000000000000', null, 'email', 'p', now(), now(), '{}')`,
	} {
		if _, err := db.Pool(pgtest.Owner).Exec(context.Background(), sql); sqlState(err) != "23505" && sqlState(err) != "23502" {
			t.Errorf("the database takes a duplicate or missing key: %v", err)
		}
	}
}

// What a rolled-back transaction reserved does not exist; what a committed one
// did is there before any provider is called.
func TestContract_D1_ReservedInTheTransaction(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	tx, err := db.Pool(pgtest.App).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	gone, err := delivery.Reserve(ctx, tx, email("a@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	f := newFake()
	kept := reserve(t, db, email("b@example.com"))
	l, _ := run(t, db, fast(f))
	drained(t, l)
	if f.called(gone[0].ID) != 0 || f.called(kept[0].ID) != 1 {
		t.Errorf("called %d times for what was rolled back, %d for what was committed", f.called(gone[0].ID), f.called(kept[0].ID))
	}
	if again := reserve(t, db, email("a@example.com")); again[0].Duplicate {
		t.Error("the key of what was rolled back counts as used")
	}
}

// A program that calls a provider without a reservation, or makes one, does
// not build; a zero one is refused at run time, and so is one whose call is
// over.
func TestContract_D1_NoReservationNoCall(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"a field":       `p.Send(context.Background(), delivery.Reservation{ID: "x"})`,
		"an inner one":  `p.Send(context.Background(), delivery.Reservation{of: nil})`,
		"by position":   `p.Send(context.Background(), delivery.Reservation{nil})`,
		"a constructor": `p.Send(context.Background(), delivery.NewReservation("x"))`,
		"an id":         `p.Send(context.Background(), "4b1c")`,
		"none":          `p.Send(context.Background())`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := compile(t, body); err == nil {
				t.Errorf("%s builds", body)
			} else if !strings.Contains(string(out), "bad.go:8") {
				t.Errorf("%s fails for another reason: %s", body, out)
			}
		})
	}
	if out, err := compile(t, `p.Send(context.Background(), delivery.Reservation{})`); err != nil {
		t.Errorf("the program around the bad lines does not build: %s", out)
	}
	if _, err := (delivery.Reservation{}).Request(); err == nil {
		t.Error("a zero reservation has a request")
	}

	db := pgtest.New(t)
	f := newFake()
	var kept delivery.Reservation
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		kept = r
		return delivery.Accepted("m"), true
	}
	d := reserve(t, db, email("a@example.com"))
	_, stop := run(t, db, fast(f))
	until(t, db, d[0].ID, delivery.Sent)
	stop()
	if out := f.Send(context.Background(), kept); out.String() != "refused" {
		t.Errorf("a reservation whose call is over may be used again: %s", out)
	}
}

// compile builds a program inside this module, so that what it imports is
// found, and returns what the compiler says.
func compile(t *testing.T, line string) ([]byte, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bad.go")
	source := "package main\n\nimport (\n\t\"context\"\n\t\"" + "github.com/deedhq/deed/delivery" + "\"\n)\n\nfunc call(p delivery.Provider) { " + line + " }\n\nfunc main() { call(nil); _ = context.Background }\n"
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(build.Default.GOROOT, "bin", "go"), "vet", file)
	return cmd.CombinedOutput()
}

// What is wrong with a delivery is said, by its number, and nothing is stored.
func TestReserve_Refused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	for want, change := range map[string]func(*delivery.Delivery){
		"channel":      func(d *delivery.Delivery) { d.Channel = "pigeon" },
		"provider":     func(d *delivery.Delivery) { d.Provider = "a b" },
		"payload":      func(d *delivery.Delivery) { d.Payload = json.RawMessage(`[1]`) },
		"guarantee":    func(d *delivery.Delivery) { d.Guarantee = "perhaps" },
		"max_attempts": func(d *delivery.Delivery) { d.MaxAttempts = -1 },
		"no key":       func(d *delivery.Delivery) { d.Key = delivery.Key{} },
		"recipient":    func(d *delivery.Delivery) { d.Recipient = strings.Repeat("x", 2001) },
	} {
		bad := email("b@example.com")
		change(&bad)
		_, err := delivery.Reserve(ctx, db.Pool(pgtest.App), email("a@example.com"), bad)
		if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "delivery 2") {
			t.Errorf("%s: %v", want, err)
		}
	}
	_, err := db.Pool(pgtest.App).Exec(ctx, `
		select deed.reserve('[0:0]={email}'::text[], '{fake}', '{a@example.com}', array['{}']::jsonb[], array[sha256('a')])`)
	if err == nil || !strings.Contains(err.Error(), "count from 1") {
		t.Errorf("an array that counts from 0: %v", err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`); n != 0 {
		t.Errorf("%d rows were stored", n)
	}
}

// Two that reserve the same keys in opposite order do not deadlock, and each
// key is stored once.
func TestReserve_RacingBatches(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	const n = 200
	batch := func(reverse bool) []delivery.Delivery {
		list := make([]delivery.Delivery, n)
		for i := range list {
			at := i
			if reverse {
				at = n - 1 - i
			}
			list[i] = email(fmt.Sprintf("%d@example.com", at))
		}
		return list
	}
	db.Providers(t, "fake", "fake")
	results := make(chan error, 8)
	made := make(chan int, 8)
	for i := range 8 {
		go func() {
			fresh := 0
			err := pgx.BeginFunc(ctx, db.Pool(pgtest.App), func(tx pgx.Tx) error {
				out, err := delivery.Reserve(ctx, tx, batch(i%2 == 1)...)
				for _, r := range out {
					if !r.Duplicate {
						fresh++
					}
				}
				return err
			})
			made <- fresh
			results <- err
		}()
	}
	total := 0
	for range 8 {
		if err := <-results; err != nil {
			t.Error(err)
		}
		total += <-made
	}
	if total != n {
		t.Errorf("%d were said to be new, want %d", total, n)
	}
}

// One audit row for a call that reserves many.
func TestContract_D3_OneAuditRowForABatch(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	list := make([]delivery.Delivery, 500)
	for i := range list {
		list[i] = email(fmt.Sprintf("%d@example.com", i))
	}
	made := reserve(t, db, list...)
	rows := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.audit_log where subject_type = 'delivery'`)
	affected := pgtest.One[int](t, db.Pool(pgtest.Owner), `select affected from deed.audit_log where subject_type = 'delivery'`)
	if rows != 1 || affected != 500 {
		t.Errorf("%d audit rows, %d affected; want 1 and 500", rows, affected)
	}
	_, events, err := ledger(t, db, delivery.Options{}).Show(context.Background(), made[7].ID, false)
	if err != nil || len(events) != 1 || events[0].Action != "reserve" || events[0].To != delivery.Queued {
		t.Errorf("one delivery's history: %+v, %v", events, err)
	}
}

// Who reserves is in the audit log, where a call is one row: nobody's name stands there for another's deliveries. Without
// a name it is the login.
func TestReserve_SaysWho(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	app := db.Pool(pgtest.App)
	by := func(who, to string) delivery.Delivery {
		d := email(to)
		d.By = who
		return d
	}
	if _, err := delivery.Reserve(ctx, app, by("ann", "a@example.com"), by("ann", "b@example.com")); err != nil {
		t.Fatal(err)
	}
	_, err := delivery.Reserve(ctx, app, by("ann", "c@example.com"), by("bob", "d@example.com"))
	if deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "delivery 2 is asked for by another than the first") {
		t.Errorf("two people in one call: %v", err)
	}
	if _, err := delivery.Reserve(ctx, app, email("e@example.com")); err != nil {
		t.Fatal(err)
	}
	got := rowsOf(t, db.Pool(pgtest.Owner), `select concat_ws(' ', actor, affected) from deed.audit_log where action = 'reserve' order by n`)
	if fmt.Sprint(got) != "[ann 2 deed_test_app 1]" {
		t.Errorf("the audit log has %q", got)
	}
}

// A delivery is reserved for a provider that a ledger has registered, and for
// no other, since nobody might ever serve it. What was reserved before that was
// so stays, is shown, and is served when somebody does.
func TestReserve_ForARegisteredProvider(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	var list []delivery.Delivery
	for i := range 1000 {
		d := email(fmt.Sprintf("%d@example.com", i))
		d.Provider = fmt.Sprintf("invented-%d", i)
		list = append(list, d)
	}
	_, err := delivery.Reserve(ctx, app, list...)
	if deed.CodeOf(err) != deed.NotFound || !strings.Contains(err.Error(), "the provider invented-") || !strings.Contains(err.Error(), "deed providers register") {
		t.Fatalf("invented names: %v", err)
	}
	_, err = delivery.Reserve(ctx, app, email("a@example.com"))
	if deed.CodeOf(err) != deed.NotFound || !strings.Contains(err.Error(), "the provider fake is not registered") {
		t.Fatalf("before any ledger: %v", err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`); n != 0 {
		t.Errorf("%d rows", n)
	}

	f := newFake()
	if err := ledger(t, db, fast(f)).Register(ctx); err != nil {
		t.Fatal(err)
	}
	made, err := delivery.Reserve(ctx, app, email("a@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	both := []delivery.Delivery{email("b@example.com"), email("c@example.com")}
	both[1].Provider = "other"
	if _, err := delivery.Reserve(ctx, app, both...); deed.CodeOf(err) != deed.NotFound || !strings.Contains(err.Error(), "provider other") {
		t.Fatalf("one of two: %v", err)
	}

	// As from before the upgrade.
	db.Exec(t, pgtest.Owner, `delete from deed.providers`)
	states, err := ledger(t, db, delivery.Options{}).Providers(ctx)
	if err != nil || len(states) != 1 || states[0].Registered || states[0].Queued != 1 {
		t.Errorf("shown as %+v, %v", states, err)
	}
	run(t, db, fast(f))
	until(t, db, made[0].ID, delivery.Sent)
}
