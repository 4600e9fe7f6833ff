package inbound_test

import (
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/inbound"
)

// A topic that nobody may publish to is refused where the executor is made, and not at each message.
func TestToTopic_Refused(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"", "a b", "deed.feedback", "deed.mine"} {
		if e, err := inbound.ToTopic(topic, false); deed.CodeOf(err) != deed.Invalid || e != nil {
			t.Errorf("%q: %v", topic, err)
		}
	}
	if e, err := inbound.ToTopic("messages", false); err != nil || e == nil {
		t.Error(err)
	}
}
