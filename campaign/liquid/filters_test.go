package liquid_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed/campaign/liquid"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{`contact.address.none | default: "friend"`, "friend"},
		{`"" | default: "friend"`, "friend"},
		{`false | default: 1`, "1"},
		{`0 | default: 1`, "0"},
		{`"a" | append: "b" | prepend: 1`, "1ab"},
		{`"a.a.a" | replace: ".", "--"`, "a--a--a"},
		{`"a.a.a" | replace_first: ".", "--"`, "a--a.a"},
		{`"a.a.a" | remove: "."`, "aaa"},
		{`"a.a.a" | remove_first: "."`, "aa.a"},
		{`"Éa" | downcase | upcase`, "ÉA"},
		{`"élan vital" | capitalize`, "Élan vital"},
		{`"  a b  " | strip | append: "|"`, "a b|"},
		{`"  a" | lstrip`, "a"},
		{`"a  " | rstrip | append: "|"`, "a|"},
		{`"<p>a <b>b</b></p> c < d" | strip_html`, "a b c < d"},
		{`"a b&c/é" | url_encode`, "a+b%26c%2F%C3%A9"},
		{`"a & &amp;" | escape_once`, "a &amp; &amp;"},
		{`"Hello, world" | truncate: 8`, "Hello..."},
		{`"Hello, world" | truncate: 8, "…"`, "Hello, …"},
		{`"Hello" | truncate: 5`, "Hello"},
		{`"Hello" | truncate: 1`, "..."},
		{`"a b c d" | truncatewords: 2`, "a b..."},
		{`"a b" | truncatewords: 2, "!"`, "a b"},
		{`"Éabcd" | slice: 1, 2`, "ab"},
		{`"abcd" | slice: -2, 9`, "cd"},
		{`"abcd" | slice: 0`, "a"},
		{`"abcd" | slice: 9, 2`, ""},
		{`"abcd" | slice: -9, 2`, ""},
		{`"abcd" | slice: 1, -2`, ""},
		{`"a,b,,c,," | split: "," | join: "-"`, "a-b--c"},
		{`" a  b " | split: " " | join: "-"`, "a-b"},
		{`contact.tags | slice: 1, 5 | join`, "a b"},
		{`contact.tags | first`, "b"},
		{`contact.tags | last`, "b"},
		{`contact.address.none | first`, ""},
		{`contact.tags | size`, "3"},
		{`"Éa" | size`, "2"},
		{`contact.address | size`, "2"},
		{`3 | size`, "0"},
		{`contact.tags | reverse | join`, "b a b"},
		{`contact.tags | sort | join`, "a b b"},
		{`items | sort: "price" | map: "name" | join: ", "`, "Hat, Coat"},
		{`items | sort: "name" | map: "name" | join: ", "`, "Coat, Hat"},
		{`contact.tags | uniq | join`, "b a"},
		{`items | map: "none" | compact | size`, "0"},
		{`contact.tags | concat: contact.tags | size`, "6"},
		{`items | where: "new" | map: "name" | join`, "Hat"},
		{`items | where: "price", 100 | map: "name" | join`, "Coat"},
		{`items | where: "name", "Hat" | size`, "1"},
		{`1 | plus: 2`, "3"},
		{`"1" | plus: "2.5"`, "3.5"},
		{`1 | minus: 2`, "-1"},
		{`3 | times: 1.5`, "4.5"},
		{`-7 | divided_by: 2`, "-4"},
		{`7 | divided_by: 2.0`, "3.5"},
		{`-7 | modulo: 3`, "2"},
		{`7.5 | modulo: 2`, "1.5"},
		{`-3 | abs`, "3"},
		{`-2.5 | abs`, "2.5"},
		{`1.2 | ceil`, "2"},
		{`-1.2 | floor`, "-2"},
		{`2.5 | round`, "3"},
		{`-2.5 | round`, "-3"},
		{`1.005 | round: 1`, "1"},
		{`contact.price | round: 0`, "1235"},
		{`contact.price | number: 2`, "1234.50"},
		{`contact.price | number: 2, ",", "."`, "1.234,50"},
		{`1234567 | number: 0, ".", ","`, "1,234,567"},
		{`-1234 | number: 2, ",", " "`, "-1 234,00"},
		{`-0.001 | number: 2`, "0.00"},
		{`123 | number`, "123"},
		{`contact.at | date: "%Y-%m-%d %H:%M"`, "2026-03-01 09:30"},
		{`contact.at | date: "%a %-d %b %y %I:%M %p %Z %j", contact.zone`, "Sun 1 Mar 26 06:30 PM JST 060"},
		{`"2026-07-04" | date: "%A, %B %e"`, "Saturday, July  4"},
		{`"2026-07-04 13:05:09+02" | date: "%T %z %Z %s"`, "13:05:09 +0200 +02:00 1783163109"},
		{`"2026-07-04T13:05:09.123456" | date: "%F %R %D %l%P %% %u %w %G-%V"`, "2026-07-04 13:05 07/04/26 1pm % 6 6 2026-27"},
		{`0 | date: "%F %Z"`, "1970-01-01 UTC"},
		{`"2026-07-10" | date: "%-d/%-m"`, "10/7"},
		{`"2026-07-04 00:05" | date: "%-H:%-M"`, "0:5"},
		{`nil | date: "%F"`, ""},
		{`"" | date: "%F"`, ""},
	} {
		if got := rendered(t, liquid.Text, "{{ "+c.source+" }}"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.source, got, c.want)
		}
	}
}

// What goes beyond a limit, or is no result, is an error and nothing else.
func TestFilters_Errors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{`contact.tags | append: "a"`, "append: an array is not a text"},
		{`contact.address | upcase`, "upcase: an object is not a text"},
		{`contact.name | first`, "first: a text is not an array"},
		{`contact.name | round`, "a number is needed"},
		{`nil | plus: 1`, "a number is needed"},
		{`"0x10" | plus: 1`, "a number is needed"},
		{`"NaN" | plus: 1`, "a number is needed"},
		{`1.5 | round: 16`, "decimals are from 0 to 15"},
		{`1.5 | round: -1`, "decimals are from 0 to 15"},
		{`1.5 | round: 0.5`, "a whole number is needed"},
		{`1 | modulo: 0`, "division by zero"},
		{`1 | divided_by: 0.0`, "division by zero"},
		{`9223372036854775807 | plus: 1`, "the result is too large"},
		{`-9223372036854775807 | minus: 2`, "the result is too large"},
		{`4611686018427387904 | times: 2`, "the result is too large"},
		{`-9223372036854775808 | abs`, "the result is too large"},
		{`"1e300" | times: "1e300"`, "the result is too large"},
		{`1 | number: 2, "123456789"`, "a mark has up to 8 bytes"},
		{`253402300800 | date: "%F"`, "a date has a year from 1 to 9998"},
		{`"31.12.2026" | date: "%F"`, "a date is needed"},
	} {
		if got := failing(t, liquid.Text, "{{ "+c.source+" }}").Error(); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.source, got, c.want)
		}
	}
}
