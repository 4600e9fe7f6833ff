package sqlfile_test

import (
	"fmt"
	"testing"

	"github.com/deedhq/deed/internal/sqlfile"
)

const text = `-- What the file is about.

-- name: one
-- Why it is so.
select 1;

-- name: two_of_them
select 1,
  2;
`

func TestLoad(t *testing.T) {
	got := sqlfile.Load[struct{ TwoOfThem, One string }](text)
	if got.One != "-- Why it is so.\nselect 1" || got.TwoOfThem != "select 1,\n  2" {
		t.Errorf("got %+v", got)
	}
}

func TestLoad_ErrNamesDiffer(t *testing.T) {
	for want, load := range map[string]func(){
		"struct { One string }: there is no field for the statement two_of_them":             func() { sqlfile.Load[struct{ One string }](text) },
		"struct { One string; TwoOfThem string; Three string }: there is no statement three": func() { sqlfile.Load[struct{ One, TwoOfThem, Three string }](text) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != want {
					t.Errorf("it panicked with %q, want %q", got, want)
				}
			}()
			load()
		}()
	}
}
