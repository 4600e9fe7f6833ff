package delivery

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/pgtest"
)

// carriage is a provider whose calls take several deliveries, and accepts all.
type carriage struct {
	mu  sync.Mutex
	ids []string // guarded by mu: of whom it was called for, by batches
}

func (*carriage) Capabilities() Capabilities {
	return Capabilities{Kind: "fake", Channels: []Channel{Email}, Key: HasKey, KeyWindow: time.Hour, Batch: 10}
}

func (*carriage) Render(d Draft) ([]byte, error) { return d.Payload, nil }

func (*carriage) Send(context.Context, Reservation) Outcome { return Accepted("m") }

func (*carriage) Batchable([]byte) bool { return true }

func (c *carriage) SendBatch(_ context.Context, b Batch) []Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range b.Members() {
		c.ids = append(c.ids, m.ID())
	}
	return b.All(Accepted("m"))
}

// A delivery whose claim was lost while its batch waited to be written, and which the same process has claimed anew, is
// written once where both come into one statement, and called by who has the newer claim: a batch is called for
// those that the database has in it.
func TestSource_OneDeliveryOfTwoClaimsInOneStatement(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	provider := &carriage{}
	l, err := New(ctx, db.Pool(pgtest.Worker), Options{
		Providers: map[string]ProviderOptions{"fake": {Provider: provider}}, Deadline: pgtest.Patience, Lease: 2 * pgtest.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	var made []Reserved
	for _, to := range []string{"ann@example.com", "bob@example.com"} {
		one, err := Reserve(ctx, db.Pool(pgtest.App), Delivery{Channel: Email, Provider: "fake", Recipient: to, Payload: json.RawMessage(`{"subject":"hello"}`), Key: NewKey(to)})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, one...)
	}
	claim := func() int64 {
		return pgtest.One[int64](t, db.Pool(pgtest.Worker), `select max(claim) from deed.claim_deliveries('fake', 'w', 10, '1 hour', p_batch => 10)`)
	}
	first := claim()
	db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second' where id = $1::text::uuid`, made[0].ID)
	second := claim()
	of := func(r Reserved, claim int64) *item {
		return &item{row: row{id: r.ID, channel: Email, request: []byte(`{"subject":"hello"}`), guarantee: AtMostOnce, claim: claim}}
	}
	lost, mate, again := of(made[0], first), of(made[1], first), of(made[0], second)

	s := l.sources[0]
	var callers sync.WaitGroup
	callers.Go(func() { s.attemptBatch(ctx, []*item{lost, mate}) })
	callers.Go(func() {
		if verdicts, err := s.writeAttempt(ctx, "", again); err != nil || verdicts[again.id].status != string(Sending) {
			t.Errorf("the newer claim: %+v, %v", verdicts[again.id], err)
		}
	})
	list := []*writing{<-s.writing, <-s.writing}
	verdicts, err := s.writeAll(ctx, list)
	for _, w := range list {
		w.answer <- written{verdicts, err}
	}
	callers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(provider.ids, []string{mate.id}) {
		t.Errorf("the batch was called for %q, want %q; %q has a newer claim", provider.ids, mate.id, lost.id)
	}
	if alone := of(made[0], first); s.mayCall(ctx, alone, verdicts[again.id], false) || alone.kind != settled {
		t.Errorf("who comes alone under the older claim may call, or gives it back: %q", alone.kind)
	}
	if lost.kind != settled || mate.kind != "accepted" {
		t.Errorf("what is recorded: %q of the claim that was lost, %q of its mate", lost.kind, mate.kind)
	}
	if lost, err := s.extend(ctx, []*item{of(made[0], first), of(made[0], second)}); err != nil || len(lost) != 1 || lost[0].claim != first {
		t.Errorf("lost, of two claims of one delivery: %+v, %v", lost, err)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select batch_size from deed.channel_outbox where id = $1::text::uuid`, mate.id); n != 1 {
		t.Errorf("the database has a batch of %d", n)
	}
}

// So it is where each is called alone: at a provider without a key it would be called twice.
func TestSource_OneDeliveryOfTwoClaimsIsCalledOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	l, err := New(ctx, db.Pool(pgtest.Worker), Options{
		Providers: map[string]ProviderOptions{"fake": {Provider: single{}}}, Deadline: pgtest.Patience, Lease: 2 * pgtest.Patience,
	})
	if err != nil {
		t.Fatal(err)
	}
	made, err := Reserve(ctx, db.Pool(pgtest.App), Delivery{Channel: Email, Provider: "fake", Recipient: "ann@example.com", Payload: json.RawMessage(`{}`), Key: NewKey("x")})
	if err != nil {
		t.Fatal(err)
	}
	var claims []*item
	for range 2 {
		claim := pgtest.One[int64](t, db.Pool(pgtest.Worker), `select max(claim) from deed.claim_deliveries('fake', 'w', 10, '1 hour')`)
		db.Exec(t, pgtest.Owner, `update deed.channel_outbox set lease_until = clock_timestamp() - interval '1 second'`)
		claims = append(claims, &item{row: row{id: made[0].ID, channel: Email, request: []byte(`{}`), guarantee: AtMostOnce, claim: claim}})
	}
	s := l.sources[0]
	var callers sync.WaitGroup
	for _, it := range claims {
		callers.Go(func() { s.attempt(ctx, it) })
	}
	list := []*writing{<-s.writing, <-s.writing}
	verdicts, err := s.writeAll(ctx, list)
	for _, w := range list {
		w.answer <- written{verdicts, err}
	}
	callers.Wait()
	if err != nil || claims[0].kind != settled || claims[0].made != nil || claims[1].kind != "accepted" {
		t.Errorf("of the claim that was lost %q, %+v; of the newer one %q; %v", claims[0].kind, claims[0].made, claims[1].kind, err)
	}
}

// single is a provider whose calls take one delivery, without a key, and accepts all.
type single struct{}

func (single) Capabilities() Capabilities {
	return Capabilities{Kind: "fake", Channels: []Channel{Email}, Key: NoKey}
}

func (single) Render(d Draft) ([]byte, error) { return d.Payload, nil }

func (single) Send(context.Context, Reservation) Outcome { return Accepted("m") }
