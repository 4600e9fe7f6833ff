package importer

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// What is bad in the file, and what only the database refuses, is left out and
// named; all else is published, once however often the file is.
func TestPublish_LeavesOutBadLinesOnly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const depth = 5000 // of what Go takes for JSON, and PostgreSQL does not
	file := fmt.Sprintf("{\"id\":1}\n{\"id\":2}\nno JSON\n{\"id\":3}\n{\"id\":4,\"x\":%s1%s}\n{\"id\":5}\n", strings.Repeat("[", depth), strings.Repeat("]", depth))
	publish := func(in io.Reader, owner *tenant.ID) (tally Tally, rejected, steps []int, err error) {
		t.Helper()
		r, err := New(in, "-", Options{Topic: "orders", Format: "ndjson", IDField: "id", Tenant: owner})
		if err != nil {
			t.Fatal(err)
		}
		tally, err = Publish(t.Context(), db.Pool(pgtest.App), r, PublishOptions{
			Batch:    2,
			Rejected: func(bad *LineError) { rejected = append(rejected, bad.Line) },
			Progress: func(t Tally) { steps = append(steps, t.Published+t.Repeated) },
		})
		return tally, rejected, steps, err
	}
	cut := errors.New("the disk is gone")
	tally, _, _, err := publish(io.MultiReader(strings.NewReader("{\"id\":1}\n"), iotest.ErrReader(cut)), nil)
	if diff := cmp.Diff(Tally{Published: 1}, tally); diff != "" || !errors.Is(err, cut) {
		t.Errorf("cut off: %v\n%s", err, diff)
	}
	for _, want := range []Tally{{Published: 3, Repeated: 1, Rejected: 2}, {Repeated: 4, Rejected: 2}} {
		tally, rejected, steps, err := publish(strings.NewReader(file), nil)
		if diff := cmp.Diff(want, tally); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		if diff := cmp.Diff([]int{3, 5}, rejected); diff != "" {
			t.Errorf("left out:\n%s", diff)
		}
		if diff := cmp.Diff([]int{2, 3, 4}, steps); diff != "" {
			t.Errorf("transactions:\n%s", diff)
		}
	}
	owner := tenant.ID{1}
	if err := tenant.Add(t.Context(), db.Pool(pgtest.Admin), owner, "one"); err != nil {
		t.Fatal(err)
	}
	if tally, _, _, err := publish(strings.NewReader(file), &owner); tally.Published != 4 || err != nil {
		t.Errorf("for a tenant: %+v, %v", tally, err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.log where tenant_id = $1::text::uuid`, owner.String()); n != 4 {
		t.Errorf("the tenant has %d messages", n)
	}
}

// Large messages are fewer in a transaction, and in the process at once.
func TestPublish_FewerOfLargeOnes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const count, size = 30, 900_000
	file := strings.Repeat(`{"x":"`+strings.Repeat("x", size)+"\"}\n", count)
	r, err := New(strings.NewReader(file), "-", Options{Topic: "orders", Format: "ndjson"})
	if err != nil {
		t.Fatal(err)
	}
	var steps []int
	tally, err := Publish(t.Context(), db.Pool(pgtest.App), r, PublishOptions{Progress: func(t Tally) { steps = append(steps, t.Published) }})
	if diff := cmp.Diff(Tally{Published: count}, tally); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if most := mostBytes/size + 1; len(steps) < 2 || steps[0] > most {
		t.Errorf("transactions end at %v of %d; want one of %d at the most", steps, count, most)
	}
}

func TestFitting(t *testing.T) {
	t.Parallel()
	big, small := make([]byte, 10<<20), make([]byte, 10)
	var sizes []int
	for rest := []deed.Message{{Payload: big}, {Payload: big}, {Payload: small}, {Payload: make([]byte, 20<<20)}}; len(rest) > 0; {
		n := fitting(rest)
		sizes = append(sizes, n)
		rest = rest[n:]
	}
	if diff := cmp.Diff([]int{1, 2, 1}, sizes); diff != "" {
		t.Error(diff)
	}
}
