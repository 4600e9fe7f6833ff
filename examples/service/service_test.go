package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func within(t *testing.T, what string, cond func() bool) {
	t.Helper()
	if !pgtest.Wait(pgtest.Patience, cond) {
		t.Fatalf("waited %s for %s", pgtest.Patience, what)
	}
}

type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// ordinary is the URL of a test's database with a search path as users have it.
func ordinary(text string) string {
	return strings.Replace(text, "options=-c%20search_path%3D", "search_path=public", 1)
}

// One order is invoiced, listed and confirmed, once each; one that is refused
// leaves nothing; and a stop ends all.
func TestService(t *testing.T) {
	db := pgtest.New(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	posted, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	post := &catcher.SMTP{Mailbox: &catcher.Mailbox{}}
	go post.Serve(t.Context(), posted)
	var log lines
	var address string
	ended := make(chan error, 1)
	begin := func() {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address = free.Addr().String()
		free.Close()
		s := settings{migrate: ordinary(db.URL(pgtest.Owner)), database: ordinary(db.URL(pgtest.Team)), smtp: posted.Addr().String(), listen: address}
		go func() { ended <- run(ctx, s, slog.New(slog.NewTextHandler(&log, nil))) }()
	}
	begin()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	within(t, "the service to be ready", func() bool {
		select {
		case err := <-ended:
			if !errors.Is(err, syscall.EADDRINUSE) {
				t.Fatal(err)
			}
			begin() // another test has got the port
		default:
		}
		code, _ := get("/readyz")
		return code == 200
	})
	for body, want := range map[string]int{
		`{"id":"7","email":"ann@example.com","cents":1250}`: 201,
		`{"id":"8","email":"nobody","cents":1}`:             500, // no address, so no order
		`{`:                                                 400,
	} {
		resp, err := http.Post("http://"+address+"/orders", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s was answered with %d, want %d", body, resp.StatusCode, want)
		}
	}
	owner := db.Pool(pgtest.Owner)
	within(t, "the invoice", func() bool {
		return pgtest.One[string](t, owner, `select coalesce(string_agg(order_id || ' ' || cents, ','), '') from public.invoices`) == "7 1250"
	})
	within(t, "the event", func() bool { return log.has("type=order.placed customer=ann@example.com") })
	within(t, "the e-mail", func() bool { return len(post.Mailbox.List()) == 1 })
	if m := post.Mailbox.List()[0]; m.Subject != "Your order 7" || m.To[0] != "ann@example.com" {
		t.Errorf("the e-mail is %+v", m)
	}
	if n := pgtest.One[int](t, owner, `select count(*) from public.orders`); n != 1 {
		t.Errorf("%d orders, want 1", n)
	}
	within(t, "the metrics", func() bool { _, text := get("/metrics"); return strings.Contains(text, "deed_process_delivered_total") })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// docs/go.md shows this program, not another.
func TestGoPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/go.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(text string) string { return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(text, "") }
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 5 {
		t.Errorf("the page has %d blocks of Go", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(squeeze(string(program)), squeeze(b[1])) {
			t.Errorf("the program does not have what the page shows:\n%s", b[1])
		}
	}
}
