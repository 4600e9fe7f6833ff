package deed_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
)

// JSON whose numbers would have very many digits is refused, through every
// function that publishes; ordinary ones with exponents are not.
func TestPublish_VastNumbersAreRefused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	floats := "[" + strings.Repeat("1.7976931348623157e+308, -4.9e-324,\n", 2000) + `"1e131071, 1e131071"]`
	publish(t, db, deed.Message{Topic: "t", Payload: []byte(floats)}, deed.Message{Topic: "t", Payload: []byte(`[1e131071, 1e-16383]`)})
	for _, number := range []string{"1e131071", "-1E+131071", "1e-16383", "0.1e00131071"} {
		bad := []byte("[" + strings.Repeat(number+",", 9000) + "1]")
		for name, call := range map[string]func() error{
			"Publish, one": func() error {
				_, err := deed.Publish(ctx, db.Pool(pgtest.App), deed.Message{Topic: "t", Payload: bad})
				return err
			},
			"Publish, more": func() error {
				_, err := deed.Publish(ctx, db.Pool(pgtest.App), message("t", 1), deed.Message{Topic: "t", Payload: bad})
				return err
			},
			"publish_one": func() error {
				_, err := db.Pool(pgtest.App).Exec(ctx, `select deed.publish_one('t', $1)`, bad)
				return err
			},
		} {
			if err := call(); err == nil || !strings.Contains(err.Error(), "digits") {
				t.Errorf("%s of many %s: %v", name, number, err)
			}
		}
	}
}

// Headers are bounded all together, and so is an aggregate type.
func TestPublish_HeadersAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	headers := map[string]string{}
	for i := range 7 {
		headers[fmt.Sprint("h", i)] = strings.Repeat("x", 8000)
	}
	publish(t, db, deed.Message{Topic: "t", Payload: []byte(`1`), Headers: headers})
	for i := range 3 {
		headers[fmt.Sprint("more", i)] = strings.Repeat("x", 8000)
	}
	bad := deed.Message{Topic: "t", Payload: []byte(`1`), Headers: headers}
	for name, ms := range map[string][]deed.Message{"one": {bad}, "more": {message("t", 1), bad}} {
		if _, err := deed.Publish(ctx, db.Pool(pgtest.App), ms...); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "65536") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := db.Pool(pgtest.App).Exec(ctx, `select deed.publish_many('{t}', '{1}', p_aggregate_types => array[repeat('x', 1001)])`)
	if err == nil || !strings.Contains(err.Error(), "1000") {
		t.Errorf("a long aggregate type: %v", err)
	}
}

// A message that says it was due, or made, long ago does not pass by those that
// wait: it is due now, and at most an hour and a few minutes older than it is.
// Among each other such messages keep the order of the times they were given.
func TestContract_O6_NobodyJumpsTheQueue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	app := db.Pool(pgtest.App)
	waits := publish(t, db, message("t", 1))[0].Seq
	db.Exec(t, pgtest.Owner, `update deed.pending set ord_at = ord_at - interval '90 minutes'`)
	for _, call := range []string{
		`select deed.publish('t', '2', p_process_after => '4713-01-01 BC')`,
		`select deed.publish_many('{t}', '{2}', p_process_after => '{4713-01-01 BC}')`,
		`select deed.publish_many('{t,t}', '{4,3}', p_created_at => array[now() - interval '3 hours', '1970-01-02'])`,
	} {
		if _, err := app.Exec(ctx, call); err != nil {
			t.Fatal(err)
		}
	}
	got := pgtest.One[[]string](t, db.Pool(pgtest.Worker), `select array_agg(convert_from(payload, 'UTF8') order by ord, id) from deed.claim(null, 'w', 10)`)
	if strings.Join(got, " ") != `{"n":1} 3 4 2 2` {
		t.Errorf("claimed in the order %v; the one that waits is %d", got, waits)
	}
	for _, call := range []string{
		`select deed.publish('t', '2', p_process_after => '10000-01-01Z')`,
		`select deed.publish_many('{t}', '{2}', p_process_after => '{294276-01-01Z}')`,
		`select deed.publish_many('{t}', '{2}', p_created_at => '{10000-01-01Z}')`,
	} {
		if _, err := app.Exec(ctx, call); err == nil || !strings.Contains(err.Error(), "DDARG") {
			t.Errorf("%s: %v", call, err)
		}
	}
}
