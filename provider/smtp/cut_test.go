package smtp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deedhq/deed/internal/catcher"
)

// A connection that is cut at any step, before the server hears the step or before its answer is heard, over a
// new connection, one that was used just now and one that was used before: what is said to be unsent was not taken,
// what is in doubt may have been, and one that has died meanwhile costs nothing.
func TestSend_CutAtEachStep(t *testing.T) {
	t.Parallel()
	steps := []string{"greeting", "EHLO", "RSET", "MAIL", "RCPT", "DATA", "message", "end"}
	for _, pipelining := range []bool{true, false} {
		for _, copies := range []bool{false, true} {
			for _, use := range []string{"new", "just used", "used before"} {
				for _, step := range steps {
					for _, heard := range []bool{false, true} {
						if heard && step == "message" { // it has no answer, but its end
							continue
						}
						c := cut{step: step, heard: heard, pipelining: pipelining}
						t.Run(fmt.Sprintf("%s, heard %t, %s, pipelining %t, copies %t", step, heard, use, pipelining, copies), func(t *testing.T) {
							t.Parallel()
							c.check(t, use, copies)
						})
					}
				}
			}
		}
	}
}

// cut is where a connection is cut, once.
type cut struct {
	step       string
	heard      bool // by the server, whose answer is not heard
	pipelining bool // the server offers it

	mu    sync.Mutex
	armed bool // guarded by mu
	done  bool // guarded by mu
}

// want is what comes of a message, and how many there are of it.
func (c *cut) want(use string) (outcome string, taken int) {
	switch c.step {
	case "greeting", "EHLO":
		if use == "new" {
			return "outage", 0
		}
	case "MAIL":
		if use != "just used" {
			return "deferred", 0
		}
	case "RCPT", "DATA":
		return "deferred", 0
	case "message":
		return "unknown", 0
	case "end":
		if c.heard {
			return "unknown", 1
		}
		return "unknown", 0
	}
	return "accepted", 1 // it does not come to that step, or goes over another connection
}

func (c *cut) check(t *testing.T, use string, copies bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	box := &catcher.Mailbox{}
	p, err := New(Options{Address: c.serve(t, box), Security: Plain})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	e := envelope{From: "a@example.com", To: "first@example.com"}
	text := []byte("Subject: x\r\n\r\n" + strings.Repeat("a line of it\r\n", 1000)) // more than one write
	if use != "new" {
		if out := p.converse(ctx, e, text, "id"); out.String() != "accepted" {
			t.Fatalf("the first message is %s: %v", out, out.Err())
		}
	}
	switch use { // whatever it takes to come to the next message
	case "just used":
		p.idle.list[0].since = time.Now().Add(time.Hour)
	case "used before":
		p.idle.list[0].since = time.Now().Add(-2 * justUsed)
	}
	c.mu.Lock()
	c.armed = true
	c.mu.Unlock()
	e.To = "second@example.com"
	if copies {
		e.CC = []string{"copy@example.com"}
	}
	begun := time.Now()
	out := p.converse(ctx, e, text, "id")
	if c.wasCut() && use == "used before" && time.Since(begun) >= noopTimeout {
		use = "new" // the server had no processor to say that it is there
	}
	want, taken := c.want(use)
	if out.String() != want {
		t.Errorf("it is %s (%v), not %s", out, out.Err(), want)
	}
	// The server may have taken what nobody has heard of: it has closed the connection by then.
	n := 0
	for _, m := range box.List() {
		if m.To[0] != "second@example.com" {
			continue
		}
		n++
		if len(m.To) != 1+len(e.CC) || len(m.Raw) < len(text) {
			t.Errorf("to %s came %d bytes of %d", m.To, len(m.Raw), len(text))
		}
	}
	if n != taken {
		t.Errorf("%d were taken, not %d", n, taken)
	}
	p.idle.mu.Lock()
	idle := len(p.idle.list)
	p.idle.mu.Unlock()
	if usable := want == "accepted"; usable != (idle == 1) {
		t.Errorf("%d connections are kept", idle)
	}
}

// serve is a catcher behind something that cuts, once it is armed, one connection to it.
func (c *cut) serve(t *testing.T, box *catcher.Mailbox) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- (&catcher.SMTP{Mailbox: box}).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the catcher ended with %v", err)
		}
	})
	return listen(t, func(client net.Conn) {
		server, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return
		}
		defer server.Close()
		c.carry(client, server)
	})
}

// cuts reports whether it is cut at a step now.
func (c *cut) cuts(step string, heard bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed || c.done || step != c.step || heard != c.heard {
		return false
	}
	c.done = true
	return true
}

// wasCut reports whether it is over.
func (c *cut) wasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.done
}

// carry carries a connection until it ends or is cut.
func (c *cut) carry(client, server net.Conn) {
	asked := make(chan string, 100)
	asked <- "greeting"
	var open sync.WaitGroup // answers that the client has not heard
	open.Add(1)
	if c.cuts("greeting", false) {
		return
	}
	go func() { // ends with the connections
		defer server.Close()
		lines, inMessage := bufio.NewReader(client), false
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			step := strings.ToUpper(line[:min(4, len(line))])
			switch {
			case inMessage && line == ".\r\n":
				inMessage, step = false, "end"
			case inMessage:
				step = "message"
			case step == "DATA":
				inMessage = true // the client says no more before it may
			}
			if c.cuts(step, false) {
				open.Wait() // what was said before it is answered
				return
			}
			if step != "message" {
				open.Add(1)
				asked <- step
			}
			if _, err := server.Write([]byte(line)); err != nil {
				return
			}
		}
	}()
	lines := bufio.NewReader(server)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if !c.pipelining {
			line = strings.Replace(line, "PIPELINING", "X-NOTHING", 1)
		}
		last := line[3] != '-'
		if last && c.cuts(<-asked, true) {
			return
		}
		if _, err := client.Write([]byte(line)); err != nil {
			return
		}
		if last {
			open.Done()
		}
	}
}

// Of what was said together the first that is refused is the answer, for one or for all, and the connection is
// used for the next message, but for one over which a message is awaited that nobody would get.
func TestSend_RefusedOfSeveral(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers map[string]string // by the beginning of a command; others are 250
		want    string
		code    string
		over    int // connections that two such messages take
	}{
		"sender":                         {map[string]string{"MAIL": "550 no", "RCPT": "503 who", "DATA": "503 who"}, "refused", "550", 1},
		"sender, later":                  {map[string]string{"MAIL": "451 later", "RCPT": "503 who", "DATA": "503 who"}, "deferred", "451", 1},
		"sender, for who we are":         {map[string]string{"MAIL": "530 who", "RCPT": "503 who", "DATA": "503 who"}, "outage", "530", 2},
		"recipient":                      {map[string]string{"RCPT": "550 5.1.1 nobody", "DATA": "554 nobody"}, "bad address", "550", 1},
		"recipient, a message awaited":   {map[string]string{"RCPT": "550 5.1.1 nobody", "DATA": "354 go on"}, "bad address", "550", 2},
		"recipient, and then closed":     {map[string]string{"RCPT": "550 5.1.1 nobody", "DATA": "421 enough"}, "bad address", "550", 2},
		"recipient, nonsense behind it":  {map[string]string{"RCPT": "550 5.1.1 nobody", "DATA": "nonsense"}, "bad address", "550", 2},
		"copy, DATA is not said":         {map[string]string{"RCPT TO:<copy": "550 no", "DATA": "354 go on"}, "refused", "550", 1},
		"DATA":                           {map[string]string{"DATA": "554 no"}, "refused", "554", 1},
		"DATA is taken without an offer": {map[string]string{"DATA": "250 ok"}, "deferred", "250", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			sessions, messages := 0, 0
			p, err := New(Options{Security: Plain, Address: listen(t, func(client net.Conn) {
				mu.Lock()
				sessions++
				mu.Unlock()
				fmt.Fprint(client, "220 hello\r\n")
				begun := false
				for in := bufio.NewScanner(client); in.Scan(); {
					verb := in.Text()[:min(4, len(in.Text()))]
					answer := c.answers[verb]
					if special := c.answers["RCPT TO:<copy"]; strings.HasPrefix(in.Text(), "RCPT TO:<copy") && special != "" {
						answer = special
					}
					nested := begun && verb == "MAIL"
					begun = verb != "RSET" && (begun || verb == "MAIL" && answer == "")
					switch {
					case nested:
						fmt.Fprint(client, "503 nested\r\n")
					case answer != "":
						fmt.Fprint(client, answer+"\r\n")
					case verb == "EHLO":
						fmt.Fprint(client, "250-hello\r\n250 PIPELINING\r\n")
					case verb == "MAIL", verb == "RCPT", verb == "RSET":
						fmt.Fprint(client, "250 ok\r\n")
					default:
						mu.Lock()
						messages++
						mu.Unlock()
					}
				}
			})})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 2 {
				e := envelope{From: "a@example.com", To: "b@example.com"}
				if c.answers["RCPT TO:<copy"] != "" {
					e.CC = []string{"copy@example.com"}
				}
				out := p.converse(ctx, e, []byte("Subject: x\r\n\r\ny\r\n"), "id")
				if out.String() != c.want || out.Code() != c.code {
					t.Errorf("it is %s with %q (%v), not %s with %s", out, out.Code(), out.Err(), c.want, c.code)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if sessions != c.over || messages > 0 {
				t.Errorf("%d connections, not %d, and %d lines of messages", sessions, c.over, messages)
			}
		})
	}
}
