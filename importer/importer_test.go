package importer_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/importer"
	"github.com/deedhq/deed/tenant"
)

// read returns what Next gives, a line each: the number, key and id of a
// message with its payload, or the error.
func read(t *testing.T, in *importer.Reader) []string {
	t.Helper()
	var got []string
	for {
		m, line, err := in.Next()
		if err == io.EOF {
			return got
		}
		if bad, ok := errors.AsType[*importer.LineError](err); ok {
			if bad.Line != line {
				t.Errorf("line %d comes with the error of line %d", line, bad.Line)
			}
			got = append(got, err.Error())
			continue
		}
		if err != nil {
			return append(got, "end: "+err.Error())
		}
		got = append(got, fmt.Sprintf("%d key=%q id=%q %s", line, m.Key, m.IdempotencyKey, m.Payload))
	}
}

func TestReader_NDJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	for _, tt := range []struct {
		name, text string
		opts       importer.Options
		want       []string
	}{
		{"empty", "", importer.Options{}, nil},
		{"payloads are the lines' bytes", "{\"b\": 1,  \"a\":2.50}\n{}\n", importer.Options{}, []string{
			`1 key="" id="" {"b": 1,  "a":2.50}`, `2 key="" id="" {}`,
		}},
		{"byte order mark, CRLF, blanks, no last line end", "\ufeff{}\r\n\r\n \t\n\t{} \r\n{}", importer.Options{}, []string{
			`1 key="" id="" {}`, `4 key="" id="" {}`, `5 key="" id="" {}`,
		}},
		{
			"key and id", `{"k":"a\"\u00e9","n":12345678901234567890}` + "\n" + `{"k":1.50e3,"n":true}` + "\n" + `{"k":"","n":"x"}`,
			importer.Options{KeyField: "k", IDField: "n"},
			[]string{
				`1 key="a\"é" id="12345678901234567890" {"k":"a\"\u00e9","n":12345678901234567890}`,
				`2 key="1.50e3" id="true" {"k":1.50e3,"n":true}`,
				`3 key="" id="x" {"k":"","n":"x"}`,
			},
		},
		{"one field for both", `{"k":9007199254740993}`, importer.Options{KeyField: "k", IDField: "k"}, []string{
			`1 key="9007199254740993" id="9007199254740993" {"k":9007199254740993}`,
		}},
		{"bad fields", `{}
{"k":null}
{"k":{}}
{"k":[1]}
{"k":"\ud800"}
{"k":"\ufffd�\\ud800"}
{"k":"` + strings.Repeat("k", 1001) + `"}
{"k":"a\u0000"}
{"k":1}`, importer.Options{KeyField: "k"}, []string{
			`line 1: field "k" is missing`,
			`line 2: field "k" is null`,
			`line 3: field "k" is an object; it must be text, a number or a boolean`,
			`line 4: field "k" is an array; it must be text, a number or a boolean`,
			`line 5: field "k" has half of a surrogate pair, which is no character`,
			`6 key="��\\ud800" id="" {"k":"\ufffd�\\ud800"}`,
			`line 7: key of 1001 bytes is over the limit of 1000`,
			`line 8: payload has the escape \u0000, which PostgreSQL's jsonb cannot hold`,
			`9 key="1" id="" {"k":1}`,
		}},
		{"bad ids", "{}\n{\"i\":\"\"}\n{\"i\":1}", importer.Options{IDField: "i"}, []string{
			`line 1: field "i" is missing`, `line 2: field "i" is empty`, `3 key="" id="1" {"i":1}`,
		}},
		{"bad lines", `{"a":1
[1]
"x"
hello
{} {}
{"a":"` + "\xff" + `"}
{}`, importer.Options{}, []string{
			`line 1: not a JSON object: unexpected end of JSON input at byte 6`,
			`line 2: not a JSON object but another JSON value`,
			`line 3: not a JSON object but another JSON value`,
			`line 4: not a JSON object`,
			`line 5: not a JSON object: invalid character '{' after top-level value at byte 4`,
			`line 6: not UTF-8`,
			`7 key="" id="" {}`,
		}},
		{"long lines", `{"a":"` + long + "\"}\n{}\n" + strings.Repeat(" ", 70000) + "\n{\"a\":12345678901}\r\n{\"a\":123456789012}", importer.Options{MaxLine: 17}, []string{
			`line 1: the line is over the limit of 17 bytes`, `2 key="" id="" {}`,
			`line 3: the line is over the limit of 17 bytes`, `4 key="" id="" {"a":12345678901}`,
			`line 5: the line is over the limit of 17 bytes`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.opts.Topic = "orders"
			for _, r := range []io.Reader{strings.NewReader(tt.text), iotest.OneByteReader(strings.NewReader(tt.text))} {
				in, err := importer.New(r, "orders.ndjson", tt.opts)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, read(t, in)); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestReader_CSV(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, text string
		opts       importer.Options
		want       []string
	}{
		{"header only", "id,name\n", importer.Options{}, nil},
		{"rows", "\ufeffid,\"na\"\"me\"\r\n1,\"a, <b>\"\r\n\r\n\"2\",\"two\r\nlines\"\r\n3,\u00e9", importer.Options{KeyField: "na\"me", IDField: "id"}, []string{
			`2 key="a, <b>" id="1" {"id":"1","na\"me":"a, <b>"}`,
			`4 key="two\nlines" id="2" {"id":"2","na\"me":"two\nlines"}`,
			`6 key="é" id="3" {"id":"3","na\"me":"é"}`,
		}},
		{"bad rows", "id,n\n1\n2,a,b\n3,\"a\nb\",c\n4,a\"b\n5,\xff\n,6\n7,x\n8,\"\n9,\xff\"\n10,x", importer.Options{IDField: "id"}, []string{
			`line 2: 1 fields, but the header has 2`,
			`line 3: 3 fields, but the header has 2`,
			`line 4: 3 fields, but the header has 2`,
			`line 6: bare " in non-quoted-field`,
			`line 7: not UTF-8`,
			`line 8: field "id" is empty`,
			`9 key="" id="7" {"id":"7","n":"x"}`,
			`line 10: not UTF-8`,
			`12 key="" id="10" {"id":"10","n":"x"}`,
		}},
		{"a quote that is not closed takes no other rows", "id,n\n1,\"a\n2,b\n3,\"c\nd\"\n4,\"e\n5,f", importer.Options{}, []string{
			`line 2: extraneous or missing " in quoted-field`,
			`3 key="" id="" {"id":"2","n":"b"}`,
			`4 key="" id="" {"id":"3","n":"c\nd"}`,
			`line 6: extraneous or missing " in quoted-field`,
			`7 key="" id="" {"id":"5","n":"f"}`,
		}},
		{"long rows", "id,n\n1,aaaaaaaa\n2,aaaaaaaaa\n3,\"aaa\n\"\"aaa\n\"\n4,a\n5,\"" + strings.Repeat("a", 70000) + "\n\"\n6,a\n", importer.Options{MaxLine: 10}, []string{
			`2 key="" id="" {"id":"1","n":"aaaaaaaa"}`,
			`line 3: the row is over the limit of 10 bytes; it ends in line 3`,
			`line 4: the row is over the limit of 10 bytes; it ends in line 6`,
			`7 key="" id="" {"id":"4","n":"a"}`,
			`line 8: the row is over the limit of 10 bytes; it ends in line 9`,
			`10 key="" id="" {"id":"6","n":"a"}`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.opts.Topic = "contacts"
			for _, r := range []io.Reader{strings.NewReader(tt.text), iotest.OneByteReader(strings.NewReader(tt.text))} {
				in, err := importer.New(r, "contacts.csv", tt.opts)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, read(t, in)); diff != "" {
					t.Errorf("messages (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestReader_MessagesCarryTheOptions(t *testing.T) {
	t.Parallel()
	owner := tenant.ID{1}
	in, err := importer.New(strings.NewReader("{}"), "-", importer.Options{
		Topic: "orders", Type: "order.placed", Tenant: &owner, Format: "ndjson",
	})
	if err != nil {
		t.Fatal(err)
	}
	got, line, err := in.Next()
	want := deed.Message{Topic: "orders", Type: "order.placed", Tenant: owner, Payload: []byte("{}")}
	if diff := cmp.Diff(want, got); diff != "" || line != 1 || err != nil {
		t.Errorf("line %d, %v (-want +got):\n%s", line, err, diff)
	}
	for range 2 {
		if _, _, err := in.Next(); err != io.EOF {
			t.Errorf("at the end: got %v", err)
		}
	}
}

// A payload is the caller's to keep.
func TestReader_PayloadsAreNotShared(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"a.ndjson": "{\"a\":1}\n{\"b\":2}\n", "a.csv": "a\n1\n2\n"} {
		in, err := importer.New(strings.NewReader(text), name, importer.Options{Topic: "a"})
		if err != nil {
			t.Fatal(err)
		}
		first, _, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		before := string(first.Payload)
		read(t, in)
		if got := string(first.Payload); got != before {
			t.Errorf("%s: the payload %s became %s", name, before, got)
		}
	}
}

func TestReader_ErrReadEnds(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for name, want := range map[string][]string{
		"a.ndjson": {`1 key="" id="" {}`, "end: import a.ndjson: line 2: disk on fire"},
		"a.csv":    {"end: import a.csv: line 2: disk on fire"},
	} {
		in, err := importer.New(io.MultiReader(strings.NewReader("{}\n{}"), iotest.ErrReader(broken)), name, importer.Options{Topic: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, read(t, in)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if _, _, err := in.Next(); !errors.Is(err, broken) {
			t.Errorf("%s: after the end: got %v", name, err)
		}
	}
}

func TestNew_Err(t *testing.T) {
	t.Parallel()
	topic := importer.Options{Topic: "a"}
	for _, tt := range []struct {
		name, file, text string
		opts             importer.Options
		want             string
	}{
		{
			"all at once", "-", "",
			importer.Options{Topic: "a b", Format: "xml", MaxLine: -1},
			"deed: import -: a topic's name has 1 to 200 characters of A-Z a-z 0-9 . _ : / -\n" +
				"MaxLine -1 is negative\n" +
				`format "xml" is neither "ndjson" nor "csv"`,
		},
		{"suffix", "-", "", topic, `deed: import -: the name does not end in .ndjson, .jsonl, .json or .csv; give the format (--format), "ndjson" or "csv"`},
		{
			"type", "a.csv", "",
			importer.Options{Topic: "a", Type: strings.Repeat("t", 201)},
			"deed: import a.csv: type of 201 bytes is over the limit of 200",
		},
		{"empty file", "a.CSV", "\n\n", topic, "deed: import a.CSV: the file is empty; its first row must name the fields"},
		{
			"header", "a.csv", "a,,b,a,\n",
			importer.Options{Topic: "a", KeyField: "k", IDField: "i"},
			"deed: import a.csv: header: field 2 has no name\n" +
				"header: field 4 is called \"a\", as field 1 is\n" +
				"header: field 5 has no name\n" +
				"header: no field is called \"k\"\n" +
				"header: no field is called \"i\"",
		},
		{"header quotes", "a.csv", "a\"b,c\n", topic, "deed: import a.csv: header: line 1: bare \" in non-quoted-field"},
		{"header not UTF-8", "a.csv", "\n\xff\n", topic, "deed: import a.csv: header: line 2: not UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := importer.New(strings.NewReader(tt.text), tt.file, tt.opts)
			if diff := cmp.Diff(tt.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if deed.CodeOf(err) != deed.Invalid {
				t.Errorf("code: got %q", deed.CodeOf(err))
			}
		})
	}
}

func TestNew_Suffixes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.ndjson", "a.jsonl", "a.json", "A.NDJSON", "a.csv.ndjson"} {
		in, err := importer.New(strings.NewReader("{}"), name, importer.Options{Topic: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, in); len(got) != 1 {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// sound checks what holds of every file: numbers of lines rise and lie within
// the file, what is read can be published, and reading ends.
func sound(t *testing.T, in *importer.Reader, text string) (payloads [][]byte, bad int) {
	t.Helper()
	last, most := 0, strings.Count(text, "\n")+1
	for {
		m, line, err := in.Next()
		if err == io.EOF {
			return payloads, bad
		}
		if line <= last || line > most {
			t.Fatalf("line %d of %d after line %d", line, most, last)
		}
		last = line
		if _, ok := errors.AsType[*importer.LineError](err); ok {
			bad++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(m.Payload) || m.Payload[0] != '{' {
			t.Fatalf("line %d: payload %q", line, m.Payload)
		}
		if _, err := deed.NewStatement(t.Context(), m); err != nil {
			t.Fatalf("line %d: %v", line, err)
		}
		payloads = append(payloads, m.Payload)
	}
}

// The reference takes the file apart with bytes.Split.
func FuzzNDJSON(f *testing.F) {
	for _, seed := range []string{
		"", "{}\n{\"id\":1}\r\n\n", "\ufeff{\"id\":\"\\ud800\"}", "{\"id\":1e400}\n[]\n{} x", "{\"id\":{}}\n{\"id\":\"\xff\"}",
	} {
		f.Add(seed, uint8(20), true)
		f.Add(seed, uint8(0), false)
	}
	f.Fuzz(func(t *testing.T, text string, most uint8, id bool) {
		opts := importer.Options{Topic: "a", MaxLine: int(most)}
		if id {
			opts.IDField = "id"
		}
		in, err := importer.New(strings.NewReader(text), "a.ndjson", opts)
		if err != nil {
			t.Fatal(err)
		}
		payloads, bad := sound(t, in, text)
		if id || most > 0 {
			return
		}
		for line := range bytes.SplitSeq(bytes.TrimPrefix([]byte(text), []byte("\ufeff")), []byte("\n")) {
			line = bytes.Trim(line, " \t\r")
			if len(line) == 0 {
				continue
			}
			if len(payloads) > 0 && bytes.Equal(payloads[0], line) {
				payloads = payloads[1:]
			} else {
				bad--
			}
		}
		if len(payloads) != 0 || bad != 0 {
			t.Errorf("payloads %q and %d errors more than the file has", payloads, bad)
		}
	})
}

// A file that the csv package reads without an error gives the same rows.
func FuzzCSV(f *testing.F) {
	for _, seed := range []string{
		"", "id,n\n1,2\n", "\ufeffid,\"n\"\r\n\"1\r\n\",\"\"\"\"\r\n\r\n2,\"\"", "id\n\"1\n2\n\"\n3\"\n", "id,n\n1,\"\n2,b\n3,\"x\"y\n", "id\n\"a\"\r\"\n\r", "id\n\"\n\xff\"",
	} {
		f.Add(seed, uint8(20))
		f.Add(seed, uint8(0))
	}
	f.Fuzz(func(t *testing.T, text string, most uint8) {
		in, err := importer.New(strings.NewReader(text), "a.csv", importer.Options{Topic: "a", MaxLine: int(most)})
		if err != nil {
			return
		}
		payloads, bad := sound(t, in, text)
		reference := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff")))
		rows, err := reference.ReadAll()
		if err != nil || most > 0 {
			return
		}
		header, rows := rows[0], rows[1:]
		if len(payloads)+bad != len(rows) {
			t.Fatalf("%d payloads and %d errors of %d rows", len(payloads), bad, len(rows))
		}
		if bad > 0 {
			return // not UTF-8, or a NUL
		}
		for i, row := range rows {
			var got map[string]string
			if err := json.Unmarshal(payloads[i], &got); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for j, name := range header {
				want[name] = row[j]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("row %d (-want +got):\n%s", i+1, diff)
			}
		}
	})
}
