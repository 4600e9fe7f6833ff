package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/sink/webhook"
)

const (
	topic = "flights"
	lease = 2 * time.Second // short, so that what a killed relay held comes back soon

	// relayHeader names the relay that sent a request, so that a repeat can be
	// traced to the kill that caused it.
	relayHeader = "demo-relay"
)

// runPart is a process that the demo has started.
func runPart(part string) error {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for the demo, which stops its parts
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the demo is gone
	}()
	switch part {
	case "receiver":
		return receive(ctx)
	case "catchers":
		return catch(ctx)
	case "launcher":
		return launch(ctx)
	}
	return relay(ctx)
}

// takeAMoment is what the far end does after its effect and before it answers.
// A relay that is killed meanwhile does not know of the effect.
func takeAMoment(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(10*time.Millisecond + rand.N(20*time.Millisecond)):
	}
}

// receive is the webhook's far end: it checks the signature and appends a line
// a request to its own file, in one write.
func receive(ctx context.Context) error {
	out, err := os.OpenFile(os.Getenv("DEMO_FILE"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	secret := []string{os.Getenv("DEMO_SECRET")}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = webhook.Verify(secret, r.Header, body, 0, time.Now())
		}
		var f flight
		if err == nil {
			err = json.Unmarshal(body, &f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "refused:", err)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a := arrival{message: r.Header.Get("webhook-id"), relay: r.Header.Get(relayHeader), at: time.Now(), body: fingerprint(body)}
		if _, err := fmt.Fprintln(out, f.ID, a.message, a.at.UnixNano(), a.relay, a.body); err != nil {
			http.Error(w, "not written", http.StatusInternalServerError)
			return
		}
		takeAMoment(r.Context())
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	s := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() }) // the demo is over
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// relay drains the topic into the webhook and into a Go handler that writes to
// a table of its own.
func relay(ctx context.Context) error {
	pid := strconv.Itoa(os.Getpid())
	pool, err := pgxpool.New(ctx, os.Getenv("DEMO_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	// The handler's database is its own affair.
	business, err := pgxpool.New(ctx, os.Getenv("DEMO_DATABASE_URL"))
	if err != nil {
		return err
	}
	defer business.Close()
	hook, err := webhook.New(webhook.Options{
		URL: "http://" + os.Getenv("DEMO_RECEIVER") + "/flights", Secret: os.Getenv("DEMO_SECRET"),
		AllowHosts: []string{"127.0.0.1"}, Headers: map[string]string{relayHeader: pid},
	})
	if err != nil {
		return err
	}
	defer hook.Close()
	handler := deed.Handle(topic, func(ctx context.Context, r deed.Received[flight]) error {
		// No "on conflict": a repeat shall be seen.
		_, err := business.Exec(ctx, `
			insert into seen_by_handler (flight, message, arrived_at, relay, body) values ($1, $2, $3, $4, $5)`,
			r.Value.ID, r.ID.String(), time.Now(), pid, fingerprint(r.Payload))
		if err == nil {
			takeAMoment(ctx)
		}
		return err
	})
	handler.Lease = lease
	subs := []deed.Subscription{{Topic: topic, Name: "webhook", Sink: hook, Lease: lease}, handler}
	if os.Getenv("DEMO_SABOTAGE") != "" {
		var promises sync.WaitGroup
		defer promises.Wait() // only kills shall lose something
		for i := range subs {
			subs[i].Sink = hasty{subs[i].Sink, &promises}
		}
	}
	c, err := connect(ctx, pool, deed.Options{
		Subscriptions: subs, Worker: "relay " + pid, Deadline: 3 * time.Second, Grace: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)).With("relay", pid),
	})
	if err != nil {
		return err
	}
	go func() { // ends when the relay is ready, or with the process
		for c.Ready(ctx) != nil {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Println("ready")
	}()
	return c.Run(ctx)
}

// connect waits for the server, which may be away.
func connect(ctx context.Context, pool *pgxpool.Pool, opts deed.Options) (*deed.Client, error) {
	for {
		c, err := deed.New(ctx, pool, opts)
		if err == nil || deed.CodeOf(err) != deed.Internal || ctx.Err() != nil {
			return c, err
		}
		opts.Logger.Warn("waiting for the database", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// hasty acknowledges what it has not delivered yet: what a relay must not do.
type hasty struct {
	sink     deed.Sink
	promises *sync.WaitGroup
}

const hastyDelay = 300 * time.Millisecond

func (h hasty) Deliver(ctx context.Context, ms []deed.Message) []error {
	ctx = context.WithoutCancel(ctx)
	ms = append([]deed.Message(nil), ms...)
	h.promises.Go(func() {
		time.Sleep(hastyDelay)
		h.sink.Deliver(ctx, ms)
	})
	return nil
}
