package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/internal/pgtest"
)

// What a row says of a contact; what is none is named by its line and field, without
// the value.
func TestContacts_Next(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file, text string
		from             int
		want             []string
	}{
		{
			"csv", "a.csv", "external_id,type:telegram,zone,locale,data.a b,data.c\n1,42,Europe/Berlin ,de,\"x\"\"y\",\n 2, ,,,,é\n,,,,z,\n3,4\n\"5\n", 0,
			[]string{
				`2 [{external_id 1 true} {telegram 42 true}] {"a b":"x\"y"} Europe/Berlin de`,
				`3 [{external_id  2 true}] {"c":"é"}  `,
				`line 4: it has no identity: email, phone, external_id or type:NAME`,
				`line 5: 2 fields, but the header has 6`,
				`line 6: extraneous or missing " in quoted-field`,
			},
		},
		{"csv, data", "a.csv", "email,data\na,\"{\"\"a\"\": 1}\"\n", 0, []string{`2 [{email a true}] {"a": 1}  `}},
		{"csv, from a line within a row", "a.csv", "email\n\"a\nb\"\nc\nd\n", 4, []string{`4 [{email c true}]   `, `5 [{email d true}]   `}},
		{
			"ndjson", "a.ndjson", `{"email": ["a", 1], "phone": null, "type:slack": "", "zone": "UTC", "data.x": {"y": null}, "data.b": "\u00e9"}
{"email": "a", "data": null}
{"email": [[]]}
{"zone": 1}
{"secret value, a": "x", "email": "a"}
{"mail": "secret"}
{"email": "a", "data": {}, "data.x": 1}
[secret]
{"phone": 4.5e3, "data": 1}
`, 0,
			[]string{
				`1 [{email a true} {email 1 true}] {"b":"\u00e9","x":{"y": null}} UTC `,
				`2 [{email a true}]   `,
				`line 3: a field called "email" is an array; it must be text, a number or a boolean`,
				`line 4: it has no identity: email, phone, external_id or type:NAME`,
				`line 5: a field is none of email, phone, external_id, type:NAME, zone, locale, data or data.KEY`,
				`line 6: a field called "mail" is none of email, phone, external_id, type:NAME, zone, locale, data or data.KEY`,
				`line 7: data and data.KEY do not go together`,
				`line 8: not a JSON object`,
				`9 [{phone 4.5e3 true}] 1  `,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rows, err := NewContacts(strings.NewReader(tt.text), tt.file, ContactOptions{Verified: true, FromLine: tt.from})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				p, line, err := rows.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if bad, ok := errors.AsType[*LineError](err); ok {
					got = append(got, bad.Error())
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprintf("%d %v %s %s %s", line, p.Identities, p.Data, p.Zone, p.Locale))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// counting counts transactions.
type counting struct {
	DB
	n int
}

func (c *counting) Begin(ctx context.Context) (pgx.Tx, error) {
	c.n++
	return c.DB.Begin(ctx)
}

// However many rows are bad, what is asked of the database for them is bounded, and
// the good ones are stored.
func TestUpsert_ManyBadRows(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	import1000 := func(line func(int) string) (ContactTally, int) {
		t.Helper()
		var b strings.Builder
		for i := range 1000 {
			b.WriteString(line(i) + "\n")
		}
		rows, err := NewContacts(strings.NewReader(b.String()), "-", ContactOptions{Format: "ndjson"})
		if err != nil {
			t.Fatal(err)
		}
		asked := &counting{DB: db.Pool(pgtest.App)}
		tally, err := Upsert(t.Context(), asked, rows, UpsertOptions{By: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return tally, asked.n
	}
	tally, asked := import1000(func(i int) string {
		if i == 500 {
			return `{"phone": "+4930123456"}`
		}
		return fmt.Sprintf(`{"phone": "030 %07d"}`, i)
	})
	if want := (ContactTally{Created: 1, Rejected: 999, NextLine: 1001}); tally != want || asked != 3 {
		t.Errorf("bad for what they are: %+v in %d transactions", tally, asked)
	}
	// What only the upsert itself finds: three that are too much with what they have.
	big := strings.Repeat("x", 40_000)
	for _, id := range []string{"10", "600", "999"} {
		person := contact.Person{Identities: []contact.Identity{{Type: "external_id", Value: id}}, Data: []byte(`{"a": "` + big + `"}`)}
		if _, err := contact.Upsert(t.Context(), db.Pool(pgtest.App), "test", person); err != nil {
			t.Fatal(err)
		}
	}
	tally, asked = import1000(func(i int) string {
		if i == 10 || i == 600 || i == 999 {
			return fmt.Sprintf(`{"external_id": %d, "data": {"b": "%s"}}`, i, big)
		}
		return fmt.Sprintf(`{"external_id": %d}`, i)
	})
	if want := (ContactTally{Created: 997, Rejected: 3, NextLine: 1001}); tally != want || asked > 2+2*3*11 {
		t.Errorf("bad for what is there: %+v in %d transactions", tally, asked)
	}
}

// What is cut off says how far it came, and goes on there, or again from the start.
func TestUpsert_CutOff(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const head, tail = "email\na@example.com\nb@example.com\nnobody\n", "c@example.com\nd@example.com\n"
	upsert := func(in io.Reader, from int) (ContactTally, error) {
		t.Helper()
		rows, err := NewContacts(in, "a.csv", ContactOptions{FromLine: from})
		if err != nil {
			t.Fatal(err)
		}
		return Upsert(t.Context(), db.Pool(pgtest.App), rows, UpsertOptions{Batch: 3})
	}
	cut := errors.New("the disk is gone")
	tally, err := upsert(io.MultiReader(strings.NewReader(head+"c@example.com\n"), iotest.ErrReader(cut)), 0)
	if want := (ContactTally{Created: 3, Rejected: 1, NextLine: 6}); tally != want || !errors.Is(err, cut) {
		t.Errorf("cut off: %+v, %v", tally, err)
	}
	tally, err = upsert(strings.NewReader(head+tail), tally.NextLine)
	if want := (ContactTally{Created: 1, NextLine: 7}); tally != want || err != nil {
		t.Errorf("from there: %+v, %v", tally, err)
	}
	tally, err = upsert(strings.NewReader(head+tail), 0)
	if want := (ContactTally{Unchanged: 4, Rejected: 1, NextLine: 7}); tally != want || err != nil {
		t.Errorf("again: %+v, %v", tally, err)
	}
}
