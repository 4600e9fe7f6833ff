package deed_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/deedhq/deed"
)

// An error of a SQL function says once what was attempted.
func TestWrapError_SaysOnceWhatWasAttempted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ op, code, message, want string }{
		{"redrive", "DDARG", "redrive: the request has no name", "deed: redrive: the request has no name"},
		{"count removal", "DDNFD", "count_removal: there is no topic x", "deed: count removal: there is no topic x"},
		{"resume provider", "DDNFD", "resume_provider: none is called mail", "deed: resume provider: none is called mail"},
		{"reserve", "DDARG", "reserve: delivery 2: to: is empty", "deed: reserve: delivery 2: to: is empty"},
		{"publish", "DDARG", "topic 'a b' must be 1 to 200 characters", "deed: publish: topic 'a b' must be 1 to 200 characters"},
	} {
		err := deed.WrapError(test.op, &pgconn.PgError{Code: test.code, Message: test.message})
		if err.Error() != test.want || deed.CodeOf(err) == deed.Internal {
			t.Errorf("got %q (%s), want %q", err, deed.CodeOf(err), test.want)
		}
	}
	err := deed.WrapError("add", &pgconn.PgError{Code: "DDNFD", Message: "add: no tenant x", Hint: "Register it with: deed tenant add."})
	if want := "deed: add: no tenant x; register it with: deed tenant add"; err.Error() != want {
		t.Errorf("with a hint: got %q, want %q", err, want)
	}
	foreign := &pgconn.PgError{Code: "23505", Message: "index: exists"}
	if err := deed.WrapError("publish", foreign); !errors.Is(err, foreign) || deed.CodeOf(err) != deed.Internal {
		t.Errorf("another's error: %v", err)
	}
}
