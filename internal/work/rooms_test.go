package work

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Of one key no more are in than may be, whoever waits takes no place of another's, all are
// bounded, who gives up leaves nothing behind, and no key is kept once all have left.
func TestRooms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRooms(3, 2)
		in := map[string]int{}
		var leaves []func()
		go func() {
			for range 2 {
				leave, err := r.Enter(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				in["a"]++
				leaves = append(leaves, leave)
			}
		}()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Enter(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a third of one key: %v", err)
		}
		go func() { // waits for a place of a's own
			leave, err := r.Enter(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			in["a"]++
			leave()
		}()
		synctest.Wait()
		leaveB, err := r.Enter(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Enter(short, "c"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a fourth of all: %v", err)
		}
		if in["a"] != 2 {
			t.Errorf("%d of a have come in", in["a"])
		}
		leaves[0]()
		synctest.Wait()
		if in["a"] != 3 {
			t.Errorf("%d of a have come in once one had left", in["a"])
		}
		leaves[1]()
		leaveB()
		if got := fmt.Sprint(len(r.keys), len(r.all)); got != "0 0" {
			t.Errorf("keys and places that are left: %s", got)
		}
	})
}
