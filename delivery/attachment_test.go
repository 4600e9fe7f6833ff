package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/contact"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

// Whatever is wrong with a copy or a file is told when the delivery is reserved, by the
// name of its field; nothing is stored. A provider finds the same, whoever stored it.
func TestReserve_BadContent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	file := func(change func(a *delivery.Attachment)) delivery.EmailPayload {
		a := delivery.Attachment{Name: "a.pdf", Type: "application/pdf", Content: []byte("x")}
		change(&a)
		return delivery.EmailPayload{Attachments: []delivery.Attachment{a}}
	}
	inline := delivery.Attachment{Name: "a.png", Content: []byte("x"), Inline: true, ContentID: "logo"}
	many := func(n int) (list []delivery.Attachment) {
		for range n {
			list = append(list, delivery.Attachment{Name: "a", Content: []byte("x")})
		}
		return list
	}
	named := func(name string) delivery.EmailPayload {
		return file(func(a *delivery.Attachment) { a.Name = name })
	}
	typed := func(kind string) delivery.EmailPayload {
		return file(func(a *delivery.Attachment) { a.Type = kind })
	}
	for what, c := range map[string]struct {
		e    delivery.EmailPayload
		want string // "": it is good
	}{
		"a file":             {named("Größe 1.pdf"), ""},
		"a type's parameter": {typed("text/calendar; method=REQUEST; charset=utf-8"), ""},
		"inline":             {delivery.EmailPayload{HTML: "<p>", Attachments: []delivery.Attachment{inline}}, ""},
		"copies":             {delivery.EmailPayload{CC: []string{"ann@example.com", "Eve@example.com"}}, ""},
		"twenty files":       {delivery.EmailPayload{Attachments: many(20)}, ""},

		"no name":            {named(""), "attachment 1: name"},
		"a path":             {named("../etc/passwd"), "attachment 1: name has a path"},
		"a path of Windows":  {named(`C:\a.txt`), "attachment 1: name has a path"},
		"dots":               {named(".."), "attachment 1: name has a path"},
		"a line's end":       {named("a\r\nBcc: x@y.z"), "attachment 1: name has control"},
		"a null":             {named("a\x01"), "attachment 1: name has control"},
		"turned":             {named("a\u202efdp.exe"), "attachment 1: name has control"},
		"a separator":        {named("a\u2028b"), "attachment 1: name has control"},
		"white space":        {named(" a"), "attachment 1: name"},
		"a long name":        {named(strings.Repeat("ü", 151)), "attachment 1: name has over 150"},
		"no type":            {typed("pdf"), "attachment 1: type"},
		"parts":              {typed("multipart/mixed; boundary=x"), "attachment 1: type"},
		"a mail":             {typed("message/rfc822"), "attachment 1: type"},
		"a type's line end":  {typed("text/plain\r\nBcc: x@y.z"), "attachment 1: type"},
		"a type with a name": {typed("text/plain; name=x"), "attachment 1: type"},
		"no content":         {file(func(a *delivery.Attachment) { a.Content = nil }), "attachment 1: content"},
		"an id alone":        {file(func(a *delivery.Attachment) { a.ContentID = "x" }), "attachment 1: content_id"},
		"no id":              {file(func(a *delivery.Attachment) { a.Inline = true }), "attachment 1: content_id"},
		"an id's line end":   {file(func(a *delivery.Attachment) { a.Inline, a.ContentID = true, "x\r\nBcc:" }), "attachment 1: content_id"},
		"an id in brackets":  {file(func(a *delivery.Attachment) { a.Inline, a.ContentID = true, "<x>" }), "attachment 1: content_id"},
		"an id twice":        {delivery.EmailPayload{HTML: "<p>", Attachments: []delivery.Attachment{inline, inline}}, "attachment 2: content_id"},
		"inline in no html":  {delivery.EmailPayload{Attachments: []delivery.Attachment{inline}}, "attachment 1: inline"},
		"many files":         {delivery.EmailPayload{Attachments: many(21)}, "attachments are 21"},
		"large":              {delivery.EmailPayload{Attachments: []delivery.Attachment{{Name: "a", Content: make([]byte, 5<<20)}, {Name: "b", Content: make([]byte, 3<<20)}}}, "attachments of 8388608 bytes"},

		"a copy of no one":  {delivery.EmailPayload{CC: []string{"ann@example.com", "nobody"}}, "cc 2 is not an address"},
		"a copy's name":     {delivery.EmailPayload{CC: []string{"Ann <ann@example.com>"}}, "cc 1 is more than an address"},
		"a copy's line end": {delivery.EmailPayload{CC: []string{"ann@example.com\r\nBcc: x@y.z"}}, "cc 1"},
		"a copy twice":      {delivery.EmailPayload{CC: []string{"ann@example.com", "ANN@example.com"}}, "cc 2 is written to already"},
		"the recipient":     {delivery.EmailPayload{CC: []string{"Bob@example.com"}}, "cc 1 is written to already"},
		"many copies":       {delivery.EmailPayload{CC: slices.Repeat([]string{"a@example.com"}, 21)}, "cc are 21"},
	} {
		c.e.Subject, c.e.Text = "hello", "x"
		d := email("bob@example.com", what)
		d.Payload = c.e.JSON()
		_, err := delivery.Reserve(context.Background(), db.Pool(pgtest.App), d)
		if _, readErr := delivery.ReadEmail(delivery.Draft{Recipient: d.Recipient, Payload: d.Payload}, shop); c.want == "" && (err != nil || readErr != nil) ||
			c.want != "" && (deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "delivery 1: "+c.want) || readErr == nil || !strings.Contains(readErr.Error(), c.want)) {
			t.Errorf("%s: %v, and read: %v", what, err, readErr)
		}
	}
	for field, payload := range map[string]string{
		"base64":      `{"subject": "x", "text": "x", "attachments": [{"name": "a", "content": "%%%"}]}`,
		"cc":          `{"subject": "x", "text": "x", "cc": "ann@example.com"}`,
		"attachments": `{"subject": "x", "text": "x", "attachments": {"name": "a"}}`,
		"cc in":       `{"subject": "x", "text": "x", "CC": ["ann@example.com"]}`,
	} {
		d := email("bob@example.com", field)
		d.Payload = json.RawMessage(payload)
		if _, err := delivery.Reserve(context.Background(), db.Pool(pgtest.App), d); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*) from deed.channel_outbox`); n != 5 {
		t.Errorf("%d deliveries are stored, of 5 that are good", n)
	}
	for _, cc := range []string{`["nobody"]`, `"ann@example.com"`, `[1]`, `[{}]`, `{}`, `[null]`, `["Ann <ann@example.com>"]`, `["a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c","a@b.c"]`} {
		_, err := db.Pool(pgtest.App).Exec(context.Background(), `select deed.reserve('{email}', '{fake}', '{x@example.com}', array[$1::jsonb], array[sha256($1::text::bytea)])`, fmt.Sprintf(`{"cc": %s}`, cc))
		if sqlState(err) != "DDARG" || !strings.Contains(err.Error(), "cc in the payload") {
			t.Errorf("cc %s in SQL: %v", cc, err)
		}
	}
	for payload, good := range map[string]bool{
		`{"cc": null}`: true, `{"cc": []}`: true, `{"CC": ["ann@example.com"]}`: false, `{"cC": null}`: false, `{"cc": ["eve@example.com"], "Cc": ["ann@example.com"]}`: false,
	} {
		_, err := db.Pool(pgtest.App).Exec(context.Background(), `select deed.reserve('{email}', '{fake}', '{x@example.com}', array[$1::jsonb], array[sha256($1::text::bytea)])`, payload)
		if good && err != nil || !good && sqlState(err) != "DDARG" {
			t.Errorf("%s in SQL: %v", payload, err)
		}
	}
}

// Go reads CC as cc, and the database looks at cc alone: nobody is written to by another name.
func TestReadEmail_FieldsAreNamedExactly(t *testing.T) {
	t.Parallel()
	for _, field := range []string{`"CC": ["ann@example.com"]`, `"Cc": null`, `"Text": "y"`} {
		_, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.com", Payload: json.RawMessage(`{"subject": "x", "text": "x", ` + field + `}`)}, shop)
		if err == nil || !strings.Contains(err.Error(), "unknown field") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// What answers are to go to may be several addresses.
func TestReadEmail_ReplyTo(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "shop@example.com": 1, "Shop <shop@example.com>, help@example.com": 2, strings.Repeat("a@example.com,", 9) + "a@example.com": 10,
		strings.Repeat("a@example.com,", 10) + "a@example.com": -1, "nobody": -1, "a@example.com\r\nBcc: x@y.z": -1, "a@example.com, b@c.d\r\n": -1,
	} {
		e, err := delivery.ReadEmail(delivery.Draft{Recipient: "bob@example.org", Payload: delivery.EmailPayload{Subject: "x", Text: "x", ReplyTo: text}.JSON()}, shop)
		if (err != nil) != (want < 0) || err != nil && !strings.Contains(err.Error(), "reply_to") || err == nil && len(e.ReplyToList()) != want {
			t.Errorf("%q: %v, %v", text, e.ReplyToList(), err)
		}
	}
}

// withCopies is an e-mail with copies.
func withCopies(recipient, purpose string, cc ...string) delivery.Delivery {
	d := email(recipient, append([]string{purpose}, cc...)...)
	d.Purpose, d.Payload = purpose, delivery.EmailPayload{Subject: "hello", Text: "x", CC: cc}.JSON()
	return d
}

// Who gets a copy is somebody as the recipient is: where one of them has been suppressed for
// what an e-mail is for, nobody is written to, when it is reserved, attempted, or would be
// repeated.
func TestContract_D11_CopiesAreSuppressed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	f := newFake().withKey(1e12)
	cut := true
	f.send = func(_ context.Context, _ int, r delivery.Reservation) (delivery.Outcome, bool) {
		if r.Recipient() == "doubt@example.com" && cut {
			db.Exec(t, pgtest.App, `select deed.suppress('email', '{later@example.com}', 'bounced', 'ann')`)
			return delivery.Unknown(errCut), false
		}
		return delivery.Accepted("m"), true
	}
	db.Exec(t, pgtest.App, `select deed.suppress('email', '{gone@example.com}', 'bounced', 'ann')`)
	db.Exec(t, pgtest.App, `select deed.suppress('email', '{left@example.com}', 'left', 'ann', p_purpose => 'news')`)
	made := reserve(t, db,
		withCopies("a@example.com", "", "ok@example.com", "GONE@example.com"),
		withCopies("b@example.com", "news", "left@example.com"),
		withCopies("c@example.com", "", "left@example.com"),
		withCopies("d@example.com", "news", "ok@example.com", "soon@example.com"),
		withCopies("doubt@example.com", "", "later@example.com"),
	)
	for i, want := range []delivery.Status{delivery.Skipped, delivery.Skipped, delivery.Queued, delivery.Queued, delivery.Queued} {
		e := entry(t, db, made[i].ID)
		if made[i].Status != want || want == delivery.Skipped && !strings.HasPrefix(e.SkipReason, "suppressed, of those who get a copy: ") {
			t.Errorf("delivery %d is %s, %q", i+1, made[i].Status, e.SkipReason)
		}
	}
	db.Exec(t, pgtest.App, `select deed.suppress('email', '{Soon@example.com}', 'complained', 'ann', p_purpose => '*')`)
	run(t, db, fast(f))
	until(t, db, made[2].ID, delivery.Sent)
	if e := until(t, db, made[3].ID, delivery.Skipped); e.SkipReason != "suppressed, of those who get a copy: complained" || f.called(made[3].ID) != 0 {
		t.Errorf("%q after %d calls", e.SkipReason, f.called(made[3].ID))
	}
	eventually(t, "the doubt to be held", func() bool { return entry(t, db, made[4].ID).HeldAt != nil })
	if n := f.called(made[4].ID); n != 1 {
		t.Errorf("repeated to somebody who is suppressed: %d calls", n)
	}
}

// Somebody who is erased has left no copy either, whoever the e-mail was for.
func TestContract_D12_CopiesAreErased(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ann := person(t, db, mail("canary-copy@example.com"))
	f := newFake()
	l, stop := run(t, db, fast(f))
	file := []byte("canary-file")
	d := withCopies("bob@example.com", "", "Canary-Copy@example.com")
	d.Payload = delivery.EmailPayload{Subject: "hello", Text: "x", CC: []string{"Canary-Copy@example.com"}, Attachments: []delivery.Attachment{{Name: "canary-name", Content: file}}}.JSON()
	sent := reserve(t, db, d)[0]
	until(t, db, sent.ID, delivery.Sent)
	drained(t, l)
	stop()
	queued := reserve(t, db, withCopies("eve@example.com", "", "canary-copy@example.com"))[0]
	other := reserve(t, db, withCopies("canary@example.com", "", "other@example.com"))[0]
	erase(t, db, ann, contact.EraseOptions{})
	erased(t, db, 2)
	if found := traces(t, db, "canary-copy", "canary-name", string(bytes.TrimSpace(file)), "Y2FuYXJ5LWZpbGU"); len(found) > 0 {
		t.Errorf("left: %q", found)
	}
	if e := entry(t, db, queued.ID); e.Status != delivery.Skipped || e.SkipReason != "erased" {
		t.Errorf("%s: %q", e.Status, e.SkipReason)
	}
	if e := entry(t, db, other.ID); e.Status != delivery.Queued {
		t.Errorf("another's is %s: %s", e.Status, e.SkipReason)
	}
}

// What is said of who got a copy suppresses that one, and is nothing of the recipient.
func TestContract_D13_EventsOfCopies(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	id := sent(t, db, withCopies("bob@example.com", "news", "copy@example.com"))[0]
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: id, Address: "Copy@example.com", ID: "1"},
		delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: id, ID: "2"}, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: id, ID: "3"})
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select address || ' ' || purpose from deed.suppressions`); !slices.Equal(got, []string{"copy@example.com "}) {
		t.Errorf("suppressed: %q", got)
	}
	id = sent(t, db, withCopies("eve@example.com", "news", "other@example.com"))[0]
	record(t, l, delivery.StatusEvent{Said: delivery.SaidBounced, Delivery: id, Address: "other@example.com", ID: "4"}, delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: id, Address: "eve@example.com", ID: "5"})
	if got := feedback(t, l, id); got.BouncedAt != nil || got.DeliveredAt == nil {
		t.Errorf("%+v", got)
	}
}

// The application is told nothing of who got a copy, however often a service repeats it; and
// that one's mail does not end the recipient's row of soft bounces.
func TestContract_D13_EventsOfCopiesAreNotPublished(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := run(t, db, said(newFake()))
	id := sent(t, db, withCopies("bob@example.com", "news", "copy@example.com"))[0]
	listen(t, db)
	record(t, l, delivery.StatusEvent{Said: delivery.SaidSoftBounced, Delivery: id, Address: "bob@example.com", ID: "1"})
	for range 2 {
		record(t, l, delivery.StatusEvent{Said: delivery.SaidComplained, Delivery: id, Address: "Copy@example.com", ID: "2"},
			delivery.StatusEvent{Said: delivery.SaidDelivered, Delivery: id, Address: "copy@example.com", ID: "3"})
	}
	if got := rowsOf(t, db.Pool(pgtest.Owner), `select type from deed.log where topic = 'deed.feedback'`); !slices.Equal(got, []string{"soft_bounced"}) {
		t.Errorf("published: %q", got)
	}
	if n := pgtest.One[int](t, db.Pool(pgtest.Owner), `select count(*)::int from deed.soft_bounces where not reached`); n != 1 {
		t.Errorf("%d soft bounces", n)
	}
}
