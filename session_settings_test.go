package deed_test

import (
	"context"
	"strings"
	"testing"

	"github.com/deedhq/deed/internal/pgtest"
)

// What a session sets of how literals are read changes no answer: what is
// refused stays so, and addresses are folded alike.
func TestContract_O6_ASessionsSettingsChangeNoAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := context.Background()
	conn := db.Conn(t, pgtest.App)
	if _, err := conn.Exec(ctx, `set standard_conforming_strings = off; set escape_string_warning = off; set client_min_messages = error`); err != nil {
		t.Fatal(err)
	}
	vast := []byte("[" + strings.Repeat("1e131071,", 400) + "1]")
	if _, err := conn.Exec(ctx, `select deed.publish_many(array['orders'], array[$1::bytea])`, vast); err == nil {
		t.Error("numbers of over 2^24 digits were taken")
	}
	for channel, addresses := range map[string][]string{
		"email":   {"Bob@Example.ORG", "bob@example.org.", "büro@Bücher.example", "bob。x@example.org", "bob@[10.0.0.1]", "Bob <bob@example.org>", ".bob@example.org"},
		"sms":     {"+49 (170) 123-45.67", "0170/1234567", "+49-x"},
		"webhook": {"https://Example.org./hook", "https://bücher.example/x", "http://[::1]:80/"},
	} {
		for _, address := range addresses {
			const fold = `select coalesce(deed.fold_address($1, $2), 'none')`
			var here string
			if err := conn.QueryRow(ctx, fold, channel, address).Scan(&here); err != nil {
				t.Errorf("%s %s: %v", channel, address, err)
			}
			same(t, channel+" "+address, here, pgtest.One[string](t, db.Pool(pgtest.App), fold, channel, address))
		}
	}
}
