package schema_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgtest"
)

// The sample strings of RFC 3492, 7.1, in small letters, and a few more, there
// and back.
func TestPunycode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/punycode.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct{ Letters, ASCII string }
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) < 20 {
		t.Fatal(len(vectors), err)
	}
	pool := pgtest.New(t).Pool(pgtest.Owner)
	for _, v := range vectors {
		if got := pgtest.One[string](t, pool, `select deed.punycode($1)`, v.Letters); got != v.ASCII {
			t.Errorf("%s is %s, want %s", v.Letters, got, v.ASCII)
		}
		if got := pgtest.One[*string](t, pool, `select deed.unpunycode($1)`, v.ASCII); got == nil || *got != v.Letters {
			t.Errorf("%s is %v, want %s", v.ASCII, got, v.Letters)
		}
	}
	for _, bad := range []string{"é", "a-!", "99999999", "zzzzzzzz99999999999", strings.Repeat("a", 64), "a-é"} {
		if got := pgtest.One[*string](t, pool, `select deed.unpunycode($1)`, bad); got != nil {
			t.Errorf("%q is %q", bad, *got)
		}
	}
}

// sameAddress lists what is one address: the first is how it is compared.
var sameAddress = map[string][][]string{
	"email": {
		{
			"bob@example.com", "Bob@Example.COM", " bob@example.com\t", "BOB@EXAMPLE.COM", "ｂｏｂ@example.com", "bob＠ｅｘａｍｐｌｅ．com",
			"bob@example。com", "𝐛𝐨𝐛@example.com",
		},
		{"bob+a_b-c.d@sub.example.co.uk", "Bob+A_b-c.d@SUB.example.co.uk"},
		{"o'hara!#$%&*/=?^`{|}~@example.com", "O'Hara!#$%&*/=?^`{|}~@example.com"},
		{"bob@localhost"},
		{"bob@192.0.2.1"},
		{"bob@[192.0.2.1]"},
		{"bob@[ipv6:2001:db8::1]", "bob@[IPv6:2001:DB8::1]"},
		{"bob@xn--mnchen-3ya.de", "bob@münchen.de", "bob@MÜNCHEN.de", "bob@mu\u0308nchen.de", "BOB@XN--MNCHEN-3YA.DE"},
		{"bob@xn--fa-hia.de", "bob@faß.de"},
		{"bob@xn--n3h.example", "bob@☃.example"},
		{"bob@xn--e1afmkfd.xn--p1ai", "bob@пример.рф", "bob@ПРИМЕР.РФ"},
		{"müller@example.com", "MÜLLER@example.com", "mu\u0308ller@example.com"},
		{"bill@example.com", "BILL@example.com"}, // also where capital I has no dot
		{"a_b@my_host.example.com"},
		{strings.Repeat("a", 64) + "@" + strings.Repeat("b", 63) + ".com"},
	},
	"sms": {
		{"+491701234567", "+49 170 1234567", "+49 (170) 123-4567", "＋４９１７０１２３４５６７", "+49\u2011170\u20111234567", "+49.170.123.4567"},
		{"491701234567"},
		{"81234"},
	},
	"voice":    {{"+491701234567", "+49 170 / 1234567"}},
	"whatsapp": {{"+491701234567", "+49 170 1234567"}},
	"webhook": {
		{
			"https://example.com/hook", "HTTPS://Example.COM/hook", "https://example.com:443/hook", "https://user:pw@example.com/hook",
			"https://example.com./hook", "https://ｅxample.com/hook",
		},
		{"https://example.com/", "https://example.com", "https://example.com:443"},
		{"http://example.com:8080/?a=b", "http://EXAMPLE.com:8080/?a=b"},
		{"http://[2001:db8::1]/x", "http://[2001:DB8::1]:80/x"},
		{"https://xn--mnchen-3ya.de/x", "https://münchen.de/x"},
		{"http://127.0.0.1:9000/hook"},
		{"http://my_service:9000/hook"},
	},
	"chat": {
		{"@bob", "@BOB", " @Bob "},
		{"#general room"},
		{"491701234567", "+491701234567", "+49 170 1234567", "+49 (170) 123-4567", "＋４９１７０１２３４５６７", "+ 49 170 1234567"},
		{"-1001234567890"},
		{"t1:u1", "T1:U1"},
		{"+bob"},
	},
	"social": {{"1234567890"}, {"стена", "СТЕНА"}},
}

// noAddress lists what is none.
var noAddress = map[string][]string{
	"email": {
		"", " ", "notanaddress", "@example.com", "bob@", "bob@@example.com", "a@b@example.com", "Bob <bob@example.com>", "<bob@example.com>",
		`"bob"@example.com`, "bob(comment)@example.com", "bob@example.com,eve@example.com", "bob@example.com; eve@example.com", "bob @example.com",
		"b ob@example.com", ".bob@example.com", "bob.@example.com", "b..b@example.com", "bob@example..com", "bob@.example.com", "bob@example.com.",
		"bob@-example.com", "bob@example-.com", "bob@exam ple.com", "bob@example!.com", "bob@[example]", "bob\\@example.com",
		"bob\u00a0@example.com", "bob\u200b@example.com", "bob@exam\u00adple.com", "bob@example.com\u200e", "\u202ebob@example.com", "\ufeffbob@example.com",
		"bob\u2060@example.com", "bob\u3164@example.com", "bo\u034fb@example.com", "bob\u2003@example.com", "bob\x7f@example.com", "bob\n@example.com",
		"bob\ufe0f@example.com", "bob\U000e0020@example.com", "b\u200dob@exa\u200cmple.com",
		"bob@xn--.de", "bob@xn--münchen.de", "bob@xn--mnchen-3yb8.de!", "bob@xn--a.de", "bob@xn--bcher-KVA\u00ad.de", "bob@xn--example-.de",
		"bob@" + strings.Repeat("a", 64) + ".com", "bob@" + strings.Repeat("ü", 63) + ".com", "bob@" + strings.Repeat("a.", 130) + "com",
		strings.Repeat("a", 320) + "@example.com",
	},
	"sms":     {"", "bob", "+", "1", "+49170x", "bob@example.com", "++49170", "49+170", strings.Repeat("1", 21), "+49\u00a0170123", "+49 (0)170 1234567", "+49( 0 )170"},
	"webhook": {"", "example.com", "ftp://example.com/", "https://", "https:///x", "https://exa mple.com/", "https://example.com/a b", "https://example.com:x/", "https://exam\u200bple.com/", "https://-example.com/", "javascript:alert(1)"},
	"chat":    {"", " ", "@b\u200bob", "@bob\u202e", "a\nb", "+49", "+0491701234567", "+49170x", "+49 (0)170 1234567", "+4917012345678901"},
}

// An address is the same one however it is written, and what is none is refused,
// in one function of the database.
func TestAddress_TheSameHoweverItIsWritten(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(pgtest.App)
	for channel, groups := range sameAddress {
		for _, group := range groups {
			for _, address := range group {
				got := pgtest.One[*string](t, pool, `select deed.fold_address($1, $2)`, channel, address)
				if got == nil || *got != group[0] {
					t.Errorf("%s %+q is %v, want %q", channel, address, deref(got), group[0])
				}
			}
		}
	}
	for channel, list := range noAddress {
		for _, address := range list {
			got := pgtest.One[*string](t, pool, `select deed.fold_address($1, $2)`, channel, address)
			problem := pgtest.One[*string](t, pool, `select problem from deed.check_address($1, $2)`, channel, address)
			if got != nil || problem == nil {
				t.Errorf("%s %+q is %q, and the problem %q", channel, address, deref(got), deref(problem))
			} else if len(address) > 5 && strings.Contains(*problem, address) {
				t.Errorf("%s: the problem repeats the address: %s", channel, *problem)
			}
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return "(none)"
	}
	return *s
}

// Letters beyond ASCII have no case in a database whose locale is C: ICU knows
// them there, and I is i in a Turkish one, too.
func TestAddress_CaseDoesNotDependOnTheLocale(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.Bare(t)
	name := db.Name() + "_c"
	db.Exec(t, pgtest.Owner, `create database `+name+` template template0 encoding 'UTF8' locale 'C'`)
	defer db.Exec(t, pgtest.Owner, `drop database `+name+` with (force)`)
	config, err := pgx.ParseConfig(db.URL(pgtest.Owner))
	if err != nil {
		t.Fatal(err)
	}
	config.Database = name
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	up(t, conn)
	for capital, small := range map[string]string{"ÄÖÜ": "äöü", "ПРИМЕР": "пример", "BILL": "bill", "ＢＩＬＬ": "bill"} {
		if got := pgtest.One[string](t, conn, `select deed.fold_case($1)`, capital); got != small {
			t.Errorf("%s is %s, want %s", capital, got, small)
		}
	}
}
