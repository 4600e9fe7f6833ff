package main

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/inbound"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/internal/uuid"
	"github.com/deedhq/deed/tenant"
)

// ofAnother is a provider whose account is another.
type ofAnother struct{ delivery.Provider }

func (p ofAnother) Capabilities() delivery.Capabilities {
	caps := p.Provider.Capabilities()
	caps.Account = "another"
	return caps
}

// later reads what comes as if it came a day later.
type later struct{ delivery.EventReader }

func (l later) ReadEvents(r *http.Request, body []byte, now time.Time) (delivery.Told, error) {
	return l.EventReader.ReadEvents(r, body, now.Add(24*time.Hour))
}

// statuses reads what a source of inbound messages says of messages that went out.
type statuses struct{ inbound.Source }

func (s statuses) ReadEvents(r *http.Request, body []byte, now time.Time) (told delivery.Told, err error) {
	got, err := s.Read(r, body, now)
	if err != nil {
		return told, delivery.ErrUnverified
	}
	return delivery.Told{Events: got.Statuses}, nil
}

// strangers are the readers of all six services, and what serves them with other options.
type strangers struct {
	*relayed
	readers map[string]delivery.EventReader
}

// handler takes what services say for a ledger like the one that runs, but for change, which
// returns the provider's name.
func (s strangers) handler(db *pgtest.DB, change func(name string, p *delivery.ProviderOptions) string) *delivery.EventsHandler {
	s.t.Helper()
	opts, readers := delivery.Options{Providers: map[string]delivery.ProviderOptions{}}, map[string]delivery.EventReader{}
	for name, reader := range s.readers {
		p := delivery.ProviderOptions{Provider: s.providers[name]}
		if change != nil {
			name = change(name, &p)
		}
		opts.Providers[name], readers[name] = p, reader
	}
	l, err := delivery.New(s.t.Context(), db.Pool(pgtest.Worker), opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return l.EventsHandler(readers)
}

// tell says all that was heard to h, of providers whose names have a prefix, and returns what
// was answered and what was counted, by provider.
func tell(h *delivery.EventsHandler, prefix string, list []*heardOf) (answers map[string][]int, counted map[string]string) {
	answers, counted = map[string][]int{}, map[string]string{}
	for _, one := range list {
		w, r := httptest.NewRecorder(), one.request()
		r.URL.Path = "/events/" + prefix + one.provider()
		h.ServeHTTP(w, r)
		if list := answers[one.provider()]; !slices.Contains(list, w.Code) {
			answers[one.provider()] = append(list, w.Code)
		}
	}
	for _, c := range h.Counts() {
		name := strings.TrimPrefix(c.Provider, prefix)
		counted[name] = strings.TrimSpace(counted[name] + " " + c.Outcome)
	}
	return answers, counted
}

// What each service says, signed as it should be, of a delivery of another tenant, of another
// account, under another provider's name, or of what this installation never sent; what nobody
// has signed; and a repeat a day later: nothing changes, and it is counted.
func TestContract_D13_StrangeEventsOfEachService(t *testing.T) {
	t.Parallel()
	r := newRelayed(t, catcher.Late)
	r.between.keep = true
	source, err := newSource(devWhatsAppSource)
	if err != nil {
		t.Fatal(err)
	}
	s := strangers{r, map[string]delivery.EventReader{"whatsapp": statuses{source.Source}}}
	maps.Copy(s.readers, r.readers)
	var list []delivery.Delivery
	for _, one := range services {
		list = append(list, one.delivery(t, catcher.Bounced, one.provider))
		list[len(list)-1].Recipient = strings.Replace(list[len(list)-1].Recipient, "@", "+"+one.provider+"@", 1)
	}
	ids := r.reserve(list...)
	eventually(t, "all to be said", func() bool { // two of each, one of Postmark's and one of the call; some perhaps again, whose answer came late
		different := map[string]bool{}
		for _, h := range r.between.all() {
			different[h.path+string(h.body)] = true
		}
		return len(different) == 12
	})
	heard := r.between.all()
	for _, id := range ids {
		eventually(t, "the calls to be recorded", func() bool { e, _ := r.life(id); return e.FinishedAt != nil })
	}
	owner := r.db.Pool(pgtest.Owner)
	nothing := func(what string) {
		t.Helper()
		for i, id := range ids {
			if e, feedback := r.life(id); e.Status == delivery.Failed || e.FinishedAt == nil || feedback != "" {
				t.Errorf("%s: %s is %s, and %q was said", what, list[i].Provider, e.Status, feedback)
			}
		}
		if n := pgtest.One[int](t, owner, `select (select count(*) from deed.suppressions) + (select count(*) from deed.unmatched_events) + (select count(*) from deed.soft_bounces)`); n != 0 {
			t.Errorf("%s: %d rows are kept of it", what, n)
		}
	}
	all := func(want string) map[string]string {
		m := map[string]string{}
		for name := range s.readers {
			m[name] = want
		}
		return m
	}
	judge := func(what, prefix string, h *delivery.EventsHandler, said []*heardOf, code int, counted map[string]string) {
		t.Helper()
		answers, got := tell(h, prefix, said)
		for name, list := range answers {
			if !slices.Equal(list, []int{code}) {
				t.Errorf("%s: %s was answered %d, want %d", what, name, list, code)
			}
		}
		if diff := cmp.Diff(counted, got); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	other := tenant.ID(uuid.New())
	r.db.Exec(t, pgtest.Owner, `insert into deed.tenants (tenant_id, name, created_at) values ($1::text::uuid, 'other', now())`, other.String())
	judge("another tenant's", "", s.handler(r.db, func(name string, p *delivery.ProviderOptions) string { p.Tenants = []tenant.ID{other}; return name }), heard, 200, all("strange"))
	judge("another account's", "", s.handler(r.db, func(name string, p *delivery.ProviderOptions) string { p.Provider = ofAnother{p.Provider}; return name }), heard, 200, all("strange"))
	judge("another provider's", "second-", s.handler(r.db, func(name string, _ *delivery.ProviderOptions) string { return "second-" + name }), heard, 200, all("strange"))
	judge("another installation's", "", s.handler(pgtest.New(t), nil), heard, 200, all("strange"))
	nothing("strange events")

	// With another delivery's marker, by somebody who cannot sign.
	forged := make([]*heardOf, len(heard))
	for i, h := range heard {
		f := &heardOf{h.path, h.header.Clone(), h.body}
		for k, id := range ids {
			another := ids[(k+1)%len(ids)]
			f.path, f.body = strings.ReplaceAll(f.path, id, another), bytes.ReplaceAll(f.body, []byte(id), []byte(another))
			if f.path != h.path || !bytes.Equal(f.body, h.body) {
				break
			}
		}
		if h.provider() == "postmark" { // which signs nothing
			f.header.Set("Authorization", "Basic ZGVlZDpndWVzc2Vk")
		}
		forged[i] = f
	}
	judge("forged ones", "", s.handler(r.db, nil), forged, 401, all("unverified"))
	nothing("forged events")

	// As it was, and again a day later.
	judge("the right ones", "", s.handler(r.db, nil), heard, 200, all("matched"))
	before := make([]delivery.Feedback, len(ids))
	for i, id := range ids {
		if before[i], err = r.ledger.Feedback(t.Context(), id); err != nil || before[i].BouncedAt == nil && before[i].AnsweredAt == nil {
			t.Fatalf("%s: %+v, %v", list[i].Provider, before[i], err)
		}
	}
	state := `select md5(string_agg(x, '|' order by x)) from (select s::text as x from deed.suppressions s union all select b::text from deed.soft_bounces b union all select f::text from deed.delivery_feedback f
		union all select o::text from deed.channel_outbox o) q`
	was := pgtest.One[string](t, owner, state)
	for name, reader := range s.readers {
		s.readers[name] = later{reader}
	}
	late := all("matched")
	late["resend"] = "unverified" // whose signatures are good for five minutes
	answers, counted := tell(s.handler(r.db, nil), "", heard)
	if diff := cmp.Diff(late, counted); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(answers["resend"], []int{401}) || !slices.Equal(answers["ses"], []int{200}) {
		t.Errorf("a day later: %v", answers)
	}
	if now := pgtest.One[string](t, owner, state); now != was {
		t.Error("a repeat a day later has changed something")
	}
}
