package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/deedhq/deed/internal/limits"
)

// Sink is a destination. Its name is also that of the subscriptions that go to
// it.
type Sink struct {
	Name    string
	Type    string
	Line    int      // where the sink stands in the file
	Webhook *Webhook // for the type webhook
	NATS    *NATS    // for the type nats
	Kafka   *Kafka   // for the type kafka
}

// sinkTypes has each type, with what reads the type's own keys. A new type is a
// file with such a function, a line here, and a field in [Sink] if it has keys.
var sinkTypes = map[string]func(*section, *Sink){
	"kafka":   func(s *section, out *Sink) { out.Kafka = s.kafka() },
	"nats":    func(s *section, out *Sink) { out.NATS = s.nats() },
	"print":   func(*section, *Sink) {},
	"webhook": func(s *section, out *Sink) { out.Webhook = s.webhook() },
}

func (s *section) sink(name string) Sink {
	if err := limits.Name("sink", name); err != nil { // it names a subscription too
		s.Problemf(s.Line, s.Path, "%s", err)
	}
	out := Sink{Name: name, Line: s.Line}
	types := slices.Sorted(maps.Keys(sinkTypes))
	if !s.Has("type") {
		s.Problemf(s.Line, s.Path, "the sink has no type; the types are %s", strings.Join(types, ", "))
		return out
	}
	out.Type = s.Text("type")
	read, ok := sinkTypes[out.Type]
	if !ok {
		if out.Type != "" {
			s.Keyf("type", "no sink type is called %q%s; the types are %s",
				out.Type, s.DidYouMean(out.Type, types), strings.Join(types, ", "))
		}
		return out // which keys it may have is not known
	}
	read(s, &out)
	s.Done()
	return out
}
