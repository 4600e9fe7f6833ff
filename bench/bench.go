package main

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/pgembed"
)

// serverSettings are the same for both peers. The server is durable: fsync,
// full_page_writes and synchronous_commit are on, as they are by default. The
// rest keeps checkpoints from falling into one peer's turn.
var serverSettings = map[string]string{
	"shared_buffers":            "512MB",
	"max_wal_size":              "8GB",
	"checkpoint_timeout":        "1h",
	"max_prepared_transactions": "10",
	"max_connections":           "200",
}

// A measure is taken for one peer, in an environment of its own.
type measure struct {
	name  string
	title func(options) string
	take  func(context.Context, *env) error
	bare  bool   // the business transaction without any peer is a contestant
	peers []peer // default: deed's queue and River

	roundTrip time.Duration // of a network between programs and server; 0: none stands between
}

var measures = []measure{
	{
		name: "bulk", take: bulk,
		title: func(o options) string {
			return fmt.Sprintf("Bulk publish: %d messages, %d a transaction", o.messages, o.batch)
		},
	},
	{
		name: "bulk by two", take: bulkByTwo,
		title: func(o options) string {
			return fmt.Sprintf("Bulk publish over two connections: %d messages, %d a transaction", o.messages, o.batch)
		},
	},
	inBusiness("", 0),
	inBusiness(" 0.5 ms", 500*time.Microsecond),
	inBusiness(" 2 ms", 2*time.Millisecond),
	{
		name: "drain", take: drain,
		title: func(o options) string {
			return fmt.Sprintf("Drain: %d messages, a handler that does nothing", o.messages)
		},
	},
	{
		name: "latency", take: latency,
		title: func(o options) string {
			return fmt.Sprintf("Latency, commit to handler: %d a second for %s", o.rate, o.steady)
		},
	},
	{
		name: "stream drain", take: drain, peers: streamPeers,
		title: func(o options) string {
			return fmt.Sprintf("Drain a stream: %d messages, a sink that does nothing", o.messages)
		},
	},
	{
		name: "stream conditions", take: drainBeside, peers: conditions,
		title: func(o options) string {
			return fmt.Sprintf("Drain a stream beside old transactions: %d messages, after %d", o.messages, 2*o.messages)
		},
	},
	{
		name: "stream cost", take: cost, peers: []peer{streamPeer{}, watermillBest, cursorLoop},
		title: func(o options) string {
			return fmt.Sprintf("Cost of a stream's message: %d published, %d a transaction, then drained", o.messages, o.batch)
		},
	},
	toStream(inBusiness("", 0)),
	toStream(inBusiness(" 0.5 ms", 500*time.Microsecond)),
	toStream(inBusiness(" 2 ms", 2*time.Millisecond)),
	{
		name: "stream bulk", take: bulk, peers: []peer{streamPeer{}, riverPeer{}, sameColumns},
		title: func(o options) string {
			return fmt.Sprintf("Bulk publish to a stream: %d messages, %d a transaction", o.messages, o.batch)
		},
	},
	{
		name: "stream bulk by two", take: bulkByTwo, peers: []peer{streamPeer{}, riverPeer{}, sameColumns},
		title: func(o options) string {
			return fmt.Sprintf("Bulk publish to a stream over two connections: %d messages, %d a transaction", o.messages, o.batch)
		},
	},
	{
		name: "stream latency", take: latency, peers: []peer{streamPeer{}, woken{streamPeer{}}},
		title: func(o options) string {
			return fmt.Sprintf("Latency of a stream, commit to handler: %d a second for %s", o.rate, o.steady)
		},
	},
	{
		name: "stream kafka", take: intoKafka, peers: []peer{streamPeer{}, bareKafka},
		title: func(o options) string {
			return fmt.Sprintf("Drain a stream into Kafka: %d messages, beside the bare client", o.messages)
		},
	},
	{
		name: "stream nats", take: intoNATS, peers: []peer{streamPeer{}, bareNATS},
		title: func(o options) string {
			return fmt.Sprintf("Drain a stream into NATS JetStream: %d messages, beside the bare client", o.messages)
		},
	},
	{
		name: "stream crowd", take: drainCrowded, peers: []peer{crowdPeer{}, streamPeer{}},
		title: func(o options) string {
			c := crowdOf(o.crowd)
			return fmt.Sprintf("Drain a stream among %d finished, %d parked behind %d dead and %d scheduled: %d messages", c.finished, c.parked, c.dead, c.scheduled, o.messages)
		},
	},
	{
		name: "stream late", take: late, peers: []peer{streamPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Long transactions on a stream: one of %d messages; one of %d that stays open for %d others", o.burst, lateMessages, o.later)
		},
	},
	{
		name: "stream processes", take: drainByProcesses, peers: []peer{processPeer{processes: 4}, processPeer{processes: 1}},
		title: func(o options) string {
			return fmt.Sprintf("Drain a stream of %d lanes by processes of their own: %d messages", processLanes, o.messages)
		},
	},
	{
		name: "stream idle", take: idle, peers: []peer{streamPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("One worker of %d streams to which nothing comes, for %s", idleTopics, o.idle)
		},
	},
	{
		name: "stream pages", take: recordPages, peers: []peer{streamPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Record %d pages of a lane beside a snapshot that is held", o.pages)
		},
	},
	{
		name: "cost", take: cost,
		title: func(o options) string {
			return fmt.Sprintf("Cost of a message: %d published, %d a transaction, then drained", o.messages, o.batch)
		},
	},
	{
		name: "faces", take: claimAndMark, peers: facePeers,
		title: func(o options) string {
			return fmt.Sprintf("Claim and mark through the app face: batches of %d, up to %s", faceBatch, o.business)
		},
	},
	{
		name: "deliveries", take: deliveries, peers: []peer{deedPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Deliveries: %d reserved in one call, then made; %d by SMTP", o.messages, smtpShare(o.messages))
		},
	},
	{
		name: "contacts", take: contacts, peers: []peer{deedPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Contacts: %d in one call, new and known; a CSV file of %d, cut off in the middle, %d rows a transaction", o.messages, importShare(o.messages), importBatch)
		},
	},
	{
		name: "events", take: telling, peers: []peer{deedPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Status events over HTTP, recorded: %d by hundreds, of which a twentieth bounces; then %d complaints a second, one a request, for %s", max(eventsBatch, o.messages/eventsShare), eventsRate, o.steady)
		},
	},
	{
		name: "runs", take: running, peers: []peer{deedPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Events of runs, each with its message: %d by thousands on one connection, one at a time by %d and by %d of one run for %s each, %d of a run beside a snapshot that is held, and all of them projected", o.messages, singleWriters, writersOfOne, o.business, max(20, o.messages/longShare))
		},
	},
	{
		name: "runs lag", take: lagging, peers: []peer{deedPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("The projector's lag, from an append's commit to the stored snapshot: %d events a second, %d a call, for %s", lagRate, lagBatch, o.steady)
		},
	},
	{
		name: "steps", take: stepping, peers: []peer{deedPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Runs on the embedded engine: %d of functions, %d in flight; runs of ten steps drained; from step to step at a pace of %d runs a second for %s; and beside %d that sleep", max(50, o.messages/10), stepCallers, stepsPace, o.steady, min(mostSleepers, o.messages))
		},
	},
	{
		name: "campaigns", take: campaigning, peers: []peer{campaignPeer{}, campaignPeer{held: true}},
		title: func(o options) string {
			return fmt.Sprintf("Campaigns: %d members reserved by %d workers, a password reset behind them for %s, and runs of %d sent while they are paused", o.members, expanders, o.steady, sendShare(o.messages))
		},
	},
	{
		name: "campaigns smtp", take: mailing, peers: []peer{campaignPeer{}, bareSMTP{}},
		title: func(o options) string {
			return fmt.Sprintf("A campaign of %d by SMTP, from its deployment to the last mail, beside a bare client with the same server; and once more, the relay killed in the middle", mails(o))
		},
	},
	{
		name: "inbound", take: receiving, peers: []peer{deedPeer{}},
		title: func(o options) string {
			return fmt.Sprintf("Inbound messages over HTTP, stored, executed and answered: %d a second for %s, then as many as %d clients send", inboundRate, o.steady, inboundClients)
		},
	},
}

// inBusiness is the business transaction, with a network of that round trip.
func inBusiness(label string, roundTrip time.Duration) measure {
	return measure{
		name: "business" + label, take: business, roundTrip: roundTrip,
		peers: []peer{deedPeer{}, withCommit{deedPeer{}}, inPipeline{deedPeer{}}, riverPeer{}, cursorLoop, bare{}},
		title: func(o options) string {
			return fmt.Sprintf("Publish in a business transaction: %d connections, %s, a round trip of the network takes %s", o.clients, o.business, roundTrip)
		},
	}
}

// toStream is the same measure, of a stream.
func toStream(m measure) measure {
	title := m.title
	m.title = func(o options) string { return strings.Replace(title(o), "Publish", "Publish to a stream", 1) }
	m.name = "stream " + m.name
	m.peers = []peer{streamPeer{}, withCommit{streamPeer{}}, inPipeline{streamPeer{}}, riverPeer{}, watermillBest, cursorLoop, bare{}}
	return m
}

// contestants are who takes part, the one in question first.
func (m measure) contestants() []peer {
	list := slices.Clone(peers)
	if m.peers != nil {
		list = slices.Clone(m.peers)
	}
	if m.bare {
		list = append(list, bare{})
	}
	return list
}

// allPeers are those of all measures, but for the bare transaction.
func allPeers() []peer {
	all := slices.Clone(peers)
	for _, m := range measures {
		for _, p := range m.peers {
			if p != peer(bare{}) {
				all = append(all, p)
			}
		}
	}
	return all
}

func measureNames() []string {
	names := make([]string, len(measures))
	for i, m := range measures {
		names[i] = m.name
	}
	return names
}

// bench is one run of the program.
type bench struct {
	opts     options
	cluster  *pgembed.Cluster
	admin    *pgx.Conn // the superuser's
	figures  figures
	wrong    []string // counts that are
	postgres string   // the server's version
	began    time.Time
}

// start makes the server and, for each peer, a database to copy.
func start(ctx context.Context, o options) (*bench, error) {
	b := &bench{opts: o, began: time.Now()}
	var err error
	if b.cluster, err = pgembed.Start(ctx, pgembed.Options{Settings: serverSettings}); err != nil {
		return nil, err
	}
	if err := b.prepare(ctx); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context) error {
	var err error
	if b.admin, err = pgx.Connect(ctx, b.cluster.URL("postgres")); err != nil {
		return err
	}
	if err := b.admin.QueryRow(ctx, `show server_version`).Scan(&b.postgres); err != nil {
		return err
	}
	made := map[string]bool{}
	for _, m := range measures {
		if b.opts.only != nil && !slices.Contains(b.opts.only, m.name) {
			continue
		}
		for _, p := range m.contestants() {
			if made[p.template()] {
				continue
			}
			made[p.template()] = true
			if err := b.makeTemplate(ctx, p); err != nil {
				return fmt.Errorf("prepare %s: %w", p.name(), err)
			}
		}
	}
	return nil
}

func (b *bench) stop() {
	if b.admin != nil {
		_ = b.admin.Close(context.Background())
	}
	if err := b.cluster.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// measure takes turns: within each run every peer, the first one last the next
// time, so that what the machine does meanwhile hits both alike.
func (b *bench) measure(ctx context.Context) error {
	for _, m := range measures {
		if b.opts.only != nil && !slices.Contains(b.opts.only, m.name) {
			continue
		}
		contestants := m.contestants()
		for n := range b.opts.runs {
			for _, p := range contestants {
				fmt.Fprintf(os.Stderr, "%s: run %d of %d: %s\n", m.name, n+1, b.opts.runs, p.name())
				var err error
				pprof.Do(ctx, pprof.Labels("peer", p.name(), "measure", m.name), func(ctx context.Context) {
					err = b.turn(ctx, m, p)
				})
				if err != nil {
					return fmt.Errorf("%s: %s: %w", m.name, p.name(), err)
				}
			}
			slices.Reverse(contestants)
		}
	}
	return nil
}

// turn takes a measure once, on a new database.
func (b *bench) turn(ctx context.Context, m measure, p peer) (err error) {
	e, err := b.newEnv(ctx, m, p)
	if err != nil {
		return err
	}
	defer func() {
		if closing := e.close(context.WithoutCancel(ctx)); err == nil {
			err = closing
		}
	}()
	return m.take(ctx, e)
}
