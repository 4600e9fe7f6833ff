package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/deedhq/deed/delivery"
)

const (
	eventsBatch = 100 // events of a request
	eventsRate  = 300 // requests of one event a second
	eventsShare = 5   // deliveries for each event of a request: a twentieth bounces
)

// teller reads requests of the benchmark's own, which are not signed.
type teller struct{}

func (teller) ReadEvents(_ *http.Request, body []byte, _ time.Time) (told delivery.Told, err error) {
	return told, json.Unmarshal(body, &told.Events)
}

// telling measures how many status events are recorded in a second, a hundred a request
// and one a request, and how long a service waits for its 200.
func telling(ctx context.Context, e *env) error {
	pool, err := e.pool(ctx, workerConns)
	if err != nil {
		return err
	}
	n := max(eventsBatch, e.opts.messages/eventsShare)
	opts := delivery.ProviderOptions{Provider: &noop{}, Concurrency: 256}
	if _, err := reserveMany(ctx, pool, "noop", opts, n); err != nil {
		return err
	}
	if _, err := e.make(ctx, pool, "noop", opts, n); err != nil {
		return err
	}
	rows, err := pool.Query(ctx, `select id::text from deed.channel_outbox order by id`)
	if err != nil {
		return err
	}
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	l, err := delivery.New(ctx, pool, delivery.Options{Providers: map[string]delivery.ProviderOptions{"noop": opts}})
	if err != nil {
		return err
	}
	url, stop, err := serveEvents(ctx, l)
	if err != nil {
		return err
	}
	err = e.tell(ctx, url, ids)
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	var bounced int
	if err := pool.QueryRow(ctx, `select count(*) from deed.delivery_feedback f join deed.suppressions s on s.reason like '%' || f.delivery_id and s.purpose = '' where f.bounced_at is not null`).Scan(&bounced); err != nil {
		return err
	}
	e.expect("bounces that suppress", bounced, (n+19)/20)
	return nil
}

// tell sends the events of deliveries: each was delivered, and a twentieth bounced.
func (e *env) tell(ctx context.Context, url string, ids []string) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: inboundClients}}
	defer client.CloseIdleConnections()
	began := time.Now()
	err := byClients(func(c int) error {
		for at := c * eventsBatch; at < len(ids); at += inboundClients * eventsBatch {
			var events []delivery.StatusEvent
			for i, id := range ids[at:min(at+eventsBatch, len(ids))] {
				said := delivery.SaidDelivered
				if (at+i)%20 == 0 {
					said = delivery.SaidBounced
				}
				events = append(events, delivery.StatusEvent{Said: said, ID: "ev-" + id, Delivery: id})
			}
			if err := tellOnce(ctx, client, url, events); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.record("by hundreds", "events/s", float64(len(ids))/time.Since(began).Seconds())
	n := int(eventsRate * e.opts.steady.Seconds())
	waits := make([]time.Duration, n)
	began = time.Now()
	err = byClients(func(c int) error {
		for i := c; i < n; i += inboundClients {
			due := began.Add(time.Duration(i) * time.Second / eventsRate)
			time.Sleep(time.Until(due))
			id := ids[i%len(ids)]
			if err := tellOnce(ctx, client, url, []delivery.StatusEvent{{Said: delivery.SaidComplained, ID: fmt.Sprint("ev2-", i), Delivery: id}}); err != nil {
				return err
			}
			waits[i] = time.Since(due)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.record("one by one, at a pace of 300", "events/s", float64(n)/time.Since(began).Seconds())
	slices.Sort(waits)
	e.record("p50", "ms", waits[len(waits)/2].Seconds()*1000)
	e.record("p99", "ms", waits[len(waits)*99/100].Seconds()*1000)
	return nil
}

func tellOnce(ctx context.Context, client *http.Client, url string, events []delivery.StatusEvent) error {
	body, err := json.Marshal(events)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("events were answered %d", answer.StatusCode)
	}
	return err
}

func serveEvents(ctx context.Context, l *delivery.Ledger) (url string, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: l.EventsHandler(map[string]delivery.EventReader{"noop": teller{}})}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	return "http://" + listener.Addr().String() + "/events/noop", func() error {
		err := server.Shutdown(context.WithoutCancel(ctx))
		if ended := <-done; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		return err
	}, nil
}
