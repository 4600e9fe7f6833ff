package campaign_test

import (
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
	"github.com/deedhq/deed/tenant"
)

// refused is the error of a deployment that would fail, or nil; of one that would not nothing stays.
func refused(t testing.TB, db *pgtest.DB, req campaign.Request) error {
	t.Helper()
	tx, err := db.Pool(pgtest.App).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = campaign.Deploy(t.Context(), tx, campaign.Scope{}, req)
	return err
}

// lacking wants the preconditions of a request that fail to be these, by how each is said, and no other.
func lacking(t testing.TB, db *pgtest.DB, what string, req campaign.Request, problems ...string) {
	t.Helper()
	err := refused(t, db, req)
	if len(problems) == 0 {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if want := "deploy campaign: " + strings.Join(problems, "; "); deed.CodeOf(err) != deed.Invalid || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

// A run whose every delivery its provider would refuse is not made: of a channel that it does not carry, or of a tenant
// that it does not serve. What an older relay has registered is not known to serve less.
func TestContract_C8_WhatAProviderServes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ended := mixed(t, db)
	good := request(t, db, 1)
	good.ID = "another"
	text := good
	text.Channel, text.Campaign, text.Audience, text.From = campaign.SMS, put(t, db, "text", campaign.Content{Text: "hello {{ unsubscribe_url }}"}).ID, people(t, db, "texted", campaign.SMS, 1).ID, ""
	register := func(tenants ...tenant.ID) {
		t.Helper()
		l, err := delivery.New(t.Context(), db.Pool(pgtest.Worker), delivery.Options{
			Providers: map[string]delivery.ProviderOptions{"fake": {Provider: &counter{}, Tenants: tenants}}, Composer: asItIs{},
		})
		if err == nil {
			err = l.Register(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	again := func() error {
		tx, err := db.Pool(pgtest.App).Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		_, err = campaign.Retry(t.Context(), tx, campaign.Scope{}, ended, campaign.RetryOptions{}, audit.Act{By: "ann", Reason: "again"})
		return err
	}
	lacking(t, db, "a text by one of whom nothing is known", text)
	register()
	lacking(t, db, "a mail", good)
	lacking(t, db, "a text by one of mails", text, "no_provider: 'fake' (fake) carries email, and not sms")
	other := tenant.ID{15: 1}
	register(other, tenant.Default)
	lacking(t, db, "one of two tenants", good)
	if err := again(); err != nil {
		t.Errorf("a retry: %v", err)
	}
	register(other)
	const elsewhere = "no_provider: 'fake' does not serve this tenant; see its tenants"
	lacking(t, db, "another tenant's", good, elsewhere)
	if err := again(); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), elsewhere) {
		t.Errorf("a retry by another tenant's: %v", err)
	}
	// What else the provider is like is nothing to another tenant.
	lacking(t, db, "another tenant's text", text, elsewhere)
	db.Exec(t, pgtest.Owner, `update deed.providers set verified_domains = '{elsewhere.example}', reports = '{bounced}'`)
	watched := good
	watched.PauseOn = &campaign.PauseOn{Complained: "0.1%"}
	lacking(t, db, "another tenant's, from an unverified domain", watched, elsewhere)
	// An older relay that starts says nothing of it.
	db.Exec(t, pgtest.Worker, `select deed.register_provider('fake', 'fake', 'domain', null, false, '{}', '{}', '{}', 'w', '', false, null, null)`)
	lacking(t, db, "of whom nothing is known", good)
}

// What is no address is no sender.
func TestContract_C8_ASenderIsAnAddress(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 1)
	for _, from := range []string{"shop@example.com", "Shop <shop@mail.example.com>", "shop@localhost", "shop@my_host.example", "Bücher <a@bücher.example>", "shop@example.com (Shop)"} {
		req.From = from
		lacking(t, db, from, req)
	}
	for _, from := range []string{"Shop", "shop at example.com", "Shop <shop>", "shop@", "shop@example..com"} {
		req.From = from
		lacking(t, db, from, req, "no_sender: '"+from+"' is no address, such as Shop <shop@example.com>")
	}
}

// Each part that an e-mail with a purpose has offers a way to leave: whoever reads but one of them has it.
func TestContract_C8_AWayToLeaveInEachPart(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 1)
	const link, none = `<a href="{{ unsubscribe_url }}">leave</a>`, "no_unsubscribe_url: "
	for name, c := range map[string]struct{ text, html, want string }{
		"text":                        {"{{unsubscribe_url}}", "", ""},
		"html":                        {"", link, ""},
		"both":                        {"{{- unsubscribe_url | escape -}}", "<!-- {{ unsubscribe_url }} -->" + link + "<!-- end -->", ""},
		"white space":                 {"{{\n\tunsubscribe_url\n}}", "", ""},
		"assigned":                    {"", `{% assign leave = unsubscribe_url %}<a href="{{ leave }}">leave</a>`, ""},
		"appended":                    {`{{ "Leave: " | append: unsubscribe_url }}`, "", ""},
		"for all but one program":     {"", "<!--[if !mso]><!-->" + link + "<!--<![endif]-->", ""},
		"in text alone":               {"{{ unsubscribe_url }}", "<p>Hello</p>", "html"},
		"in html alone":               {"Hello", link, "text"},
		"in none":                     {"Hello", "<p>Hello</p>", "text and its html"},
		"the word":                    {"unsubscribe_url", "", "text"},
		"asked for":                   {"{% if unsubscribe_url %}Hello{% endif %}", "", "text"},
		"of the contact":              {"{{ contact.unsubscribe_url }}", "", "text"},
		"another name":                {"{{ unsubscribe_urls }}", "", "text"},
		"in a comment":                {"", "<!-- " + link + " -->", "html"},
		"in a comment without an end": {"", "<p>Hello</p><!-- " + link, "html"},
		"in raw":                      {"{% raw %}{{ unsubscribe_url }}{% endraw %}", "", "text"},
		"behind raw and a comment":    {"{%- raw -%}{% comment %}{%- endraw -%}{% comment %}{% raw %}{% endcomment %}{{ unsubscribe_url }}{% raw %}x{% endraw %}", "", ""},
		"in raw without an end":       {"", "{% raw %}" + link, "html"},
		"in a template's comment":     {"{% comment %}{{ unsubscribe_url }}{%- endcomment -%}Hello{% comment %}x{% endcomment %}", "", "text"},
	} {
		req.Campaign = put(t, db, name, campaign.Content{Subject: "x", Text: c.text, HTML: c.html}).ID
		var problems []string
		if c.want != "" {
			problems = []string{none + "what has a purpose must offer a way to leave it; write {{ unsubscribe_url }} in its " + c.want}
		}
		lacking(t, db, name, req, problems...)
	}
	req.Purpose, req.Transactional = "", true
	lacking(t, db, "without a purpose", req)
	big := strings.Repeat("<!-- {{ {% comment %}", 1<<19/21)
	req.Purpose, req.Transactional, req.Campaign = "newsletter", false, put(t, db, "big", campaign.Content{Subject: "x", Text: big + "{% endcomment %} {{ unsubscribe_url }}", HTML: big}).ID
	if err := refused(t, db, req); err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("a large one: %v", err)
	}
}

// A text that is empty is none: an e-mail that has html beside it has all that it needs, and one that has not lacks it.
func TestContract_C8_AnEmptyTextIsNone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	req := request(t, db, 1)
	for html, problems := range map[string][]string{"{{ unsubscribe_url }}": nil, "": {"no_content: an e-mail needs a subject, and text or html"}} {
		req.Campaign = pgtest.One[string](t, db.Pool(pgtest.App), `select campaign_id::text from deed.put_campaign('html: ' || $1::text, jsonb_build_object('subject', 'x', 'text', '', 'html', $1::text))`, html)
		lacking(t, db, "with the html "+html, req, problems...)
	}
}
