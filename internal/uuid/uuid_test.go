package uuid_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deedhq/deed/internal/uuid"
)

func TestNew_IsVersion7AndCarriesTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := map[uuid.UUID]bool{}
		for range 100 {
			u := uuid.New()
			ms := time.Now().UnixMilli()
			for i := range 6 {
				if u[i] != byte(ms>>(40-8*i)) {
					t.Fatalf("%s at %d ms", u, ms)
				}
			}
			if u[6]>>4 != 7 || u[8]>>6 != 2 || seen[u] {
				t.Errorf("%s is no UUIDv7, or was made before", u)
			}
			seen[u] = true
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("6F1C2D3E-0000-4000-8000-00000000000a")
	f.Add("6f1c2d3e00004000800000000000000a")
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := uuid.Parse(s); err == nil && !strings.EqualFold(u.String(), s) {
			t.Errorf("%q is read as %s", s, u)
		}
	})
}
