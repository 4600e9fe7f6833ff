package signedlink_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/signedlink"
)

const oldSecret, newSecret = "the secret of last year", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

var until = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func signer(t testing.TB, secrets ...string) *signedlink.Signer {
	t.Helper()
	s, err := signedlink.New(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSigner_ChecksWhatItSigned(t *testing.T) {
	t.Parallel()
	s := signer(t, oldSecret)
	for _, fields := range [][]string{nil, {""}, {"a"}, {"a", "b"}, {"ab"}, {"", "", ""}, {strings.Repeat("ü", 500), "\x00"}} {
		token := s.Sign("confirm", until, fields...)
		if got, err := s.Check("confirm", token, until.Add(-time.Second)); err != nil || !slices.Equal(got, fields) {
			t.Errorf("%q came back as %q: %v", fields, got, err)
		}
		if _, err := s.Check("unsubscribe", token, until.Add(-time.Hour)); !errors.Is(err, signedlink.ErrForged) {
			t.Errorf("it does for another path: %v", err)
		}
		if _, err := s.Check("confirm", token, until); !errors.Is(err, signedlink.ErrExpired) {
			t.Errorf("it is good when its time is over: %v", err)
		}
	}
	if s.Sign("confirm", until, "a", "b") == s.Sign("confirm", until, "ab") || s.Sign("ab", until) == s.Sign("a", until, "b") {
		t.Error("where a field ends makes no difference")
	}
}

// A letter that is another one, is missing or is too many makes it somebody else's.
func TestSigner_RefusesWhatWasChanged(t *testing.T) {
	t.Parallel()
	s := signer(t, oldSecret)
	token := s.Sign("confirm", until, "contact", "email", "news")
	refused := func(what, changed string) {
		t.Helper()
		if _, err := s.Check("confirm", changed, until.Add(-time.Hour)); !errors.Is(err, signedlink.ErrForged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range token {
		for _, c := range "AQgw_-" {
			if changed := token[:i] + string(c) + token[i+1:]; changed != token {
				refused("another letter", changed)
			}
		}
		refused("cut", token[:i])
	}
	refused("longer", token+"A")
	refused("padded", token+"=")
	refused("with a line's end", token[:9]+"\n"+token[9:])
	refused("vast", strings.Repeat("A", 1<<20))
	refused("another's", signer(t, newSecret).Sign("confirm", until, "contact", "email", "news"))
}

// Who rotates the secret leaves the old one beside the new one as long as links that
// it signed are to work.
func TestSigner_Rotated(t *testing.T) {
	t.Parallel()
	before, during, after := signer(t, oldSecret), signer(t, newSecret, oldSecret), signer(t, newSecret)
	old, fresh := before.Sign("confirm", until, "x"), during.Sign("confirm", until, "x")
	for what, c := range map[string]struct {
		s     *signedlink.Signer
		token string
		good  bool
	}{
		"old while both are known":  {during, old, true},
		"new while both are known":  {during, fresh, true},
		"old when it is gone":       {after, old, false},
		"new when the other's gone": {after, fresh, true},
		"new where nobody has it":   {before, fresh, false},
	} {
		if _, err := c.s.Check("confirm", c.token, until.Add(-time.Hour)); (err == nil) != c.good {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, secrets := range [][]string{nil, {""}, {"short"}, {newSecret, "short"}, {"whsec_not base64"}} {
		if _, err := signedlink.New(secrets...); err == nil {
			t.Errorf("%q are taken as secrets", secrets)
		} else if strings.Contains(err.Error(), "short") {
			t.Errorf("a secret is in the error: %v", err)
		}
	}
}

func FuzzSigner_Check(f *testing.F) {
	s := signer(f, oldSecret)
	f.Add(s.Sign("confirm", until, "a", "b"))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		fields, err := s.Check("confirm", token, until.Add(-time.Hour))
		if err == nil && s.Sign("confirm", until, fields...) != token {
			t.Errorf("%q is taken", token)
		}
	})
}
