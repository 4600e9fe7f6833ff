package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const receivedFile = "received-by-webhook.txt"

// flightsTable is what was committed.
func (s *show) flightsTable(ctx context.Context) (map[string]bool, error) {
	rows, err := s.pool.Query(ctx, `select id from flights`)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	committed := make(map[string]bool, len(ids))
	for _, id := range ids {
		committed[id] = true
	}
	return committed, err
}

// receivedByWebhook reads the receiver's own file.
func (s *show) receivedByWebhook() (map[string][]arrival, error) {
	in, err := os.Open(s.file(receivedFile))
	if err != nil {
		return nil, err
	}
	defer in.Close()
	seen := map[string][]arrival{}
	scan := bufio.NewScanner(in)
	for n := 1; scan.Scan(); n++ {
		var id string
		var a arrival
		var nanos int64
		if _, err := fmt.Sscan(scan.Text(), &id, &a.message, &nanos, &a.relay, &a.body); err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", in.Name(), n, scan.Text(), err)
		}
		a.at = time.Unix(0, nanos)
		seen[id] = append(seen[id], a)
	}
	return seen, scan.Err()
}

// takenOver reads the relays' logs: the messages, by subscription, whose lease had run out
// when a relay claimed them.
func (s *show) takenOver() (map[string]map[string]bool, error) {
	taken := map[string]map[string]bool{}
	for i := range s.relays {
		text, err := os.ReadFile(s.relayLog(i))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "took over a claim that had run out") {
				continue
			}
			fields := map[string]string{}
			for field := range strings.FieldsSeq(line) {
				name, value, _ := strings.Cut(field, "=")
				fields[name] = value
			}
			of := fields["subscription"]
			if taken[of] == nil {
				taken[of] = map[string]bool{}
			}
			taken[of][fields["message_id"]] = true
		}
	}
	return taken, nil
}

// receivedByHandler reads the handler's own table.
func (s *show) receivedByHandler(ctx context.Context) (map[string][]arrival, error) {
	rows, err := s.pool.Query(ctx, `select flight, message::text, arrived_at, relay, body from seen_by_handler`)
	if err != nil {
		return nil, err
	}
	seen := map[string][]arrival{}
	var id string
	var a arrival
	_, err = pgx.ForEachRow(rows, []any{&id, &a.message, &a.at, &a.relay, &a.body}, func() error {
		seen[id] = append(seen[id], a)
		return nil
	})
	return seen, err
}

// export writes the tables beside the receiver's file, for whoever wants to
// count again.
func (s *show) export(ctx context.Context) error {
	for name, query := range map[string]string{
		"flights.csv":         `select id, details from flights order by id`,
		"seen-by-handler.csv": `select * from seen_by_handler order by arrived_at`,
	} {
		if err := s.copyOut(ctx, name, query); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *show) copyOut(ctx context.Context, name, query string) error {
	out, err := os.Create(s.file(name))
	if err != nil {
		return err
	}
	defer out.Close()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Conn().PgConn().CopyTo(ctx, out, `copy (`+query+`) to stdout (format csv)`); err != nil {
		return err
	}
	return out.Close()
}
