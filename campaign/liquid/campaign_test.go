package liquid_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/campaign"
	"github.com/deedhq/deed/campaign/liquid"
	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// What a campaign's delivery says is made of its run's content and of its row's data; what
// the template cannot make fails the delivery, what the database cannot say does not.
func TestEngine_ComposesDeliveries(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Providers(t, "fake", "fake")
	ctx := t.Context()
	app := db.Pool(pgtest.App)
	made := 0
	deploy := func(channel campaign.Channel, content campaign.Content, address string) string {
		t.Helper()
		made++
		name := string(rune('a' + made))
		if _, err := campaign.NewMessage(liquid.Engine, content, campaign.MessageOptions{Channel: channel}); err != nil {
			t.Fatal(err)
		}
		c, err := campaign.Put(ctx, app, campaign.Scope{}, name, content)
		if err != nil {
			t.Fatal(err)
		}
		a, err := campaign.OpenAudience(ctx, app, campaign.Scope{}, name, channel)
		if err == nil {
			err = a.Add(ctx, app, campaign.Member{Address: address})
		}
		if err == nil {
			err = a.Finish(ctx, app)
		}
		if err != nil {
			t.Fatal(err)
		}
		req := campaign.Request{Campaign: c.ID, Audience: a.ID, ID: name, Channel: channel, Provider: "fake", Transactional: true, From: "shop@example.com", ReplyTo: "help@example.com"}
		if channel == campaign.Email {
			req.Transactional, req.Purpose = false, "newsletter"
		}
		d, err := campaign.Deploy(ctx, app, campaign.Scope{}, req)
		if err != nil {
			t.Fatal(err)
		}
		return d.Run
	}
	c := campaign.NewComposer(db.Pool(pgtest.Worker), liquid.Engine)
	draft := delivery.Draft{Unsubscribe: "https://x.example/u/1", Payload: json.RawMessage(`{"contact": {"name": "A & <b>"}}`)}
	for _, tc := range []struct {
		channel campaign.Channel
		content campaign.Content
		address string
		want    string
	}{
		{
			campaign.Email,
			campaign.Content{Subject: "Hi {{ contact.name }}", Text: "{{ contact.name }} {{ unsubscribe_url }}", HTML: "<p>{{ contact.name }} {{ unsubscribe_url }}</p>"},
			"a@b.example",
			`{"from":"shop@example.com","reply_to":"help@example.com","subject":"Hi A \u0026 \u003cb\u003e","text":"A \u0026 \u003cb\u003e https://x.example/u/1","html":"\u003cp\u003eA \u0026amp; \u0026lt;b\u0026gt; https://x.example/u/1\u003c/p\u003e"}`,
		},
		{campaign.SMS, campaign.Content{Text: "Hi {{ contact.name }}"}, "+493012345", `{"text":"Hi A \u0026 \u003cb\u003e"}`},
		{campaign.Voice, campaign.Content{Script: "Hi {{ contact.name }}", ScriptVersion: "1"}, "+493012345", `{"text":"Hi A \u0026 \u003cb\u003e"}`},
		{campaign.Social, campaign.Content{Text: "Hi", Post: "1"}, "@shop", `{"text":"Hi"}`},
	} {
		draft.Run = deploy(tc.channel, tc.content, tc.address)
		for range 2 { // again, from what is at hand
			got, err := c.Compose(ctx, draft)
			if err != nil || string(got) != tc.want {
				t.Errorf("%s: %s %v, want %s", tc.channel, got, err, tc.want)
			}
		}
	}
	draft.Run = deploy(campaign.SMS, campaign.Content{Text: "{{ contact.id }} {{ contact.n | divided_by: 2 }} {{ contact.list[0] }} {{ contact.price }}"}, "+493012345")
	whole := draft
	whole.Payload = json.RawMessage(`{"contact": {"id": 9007199254740993, "n": 7, "list": [-9223372036854775808], "price": 12.50}}`)
	if got, err := c.Compose(ctx, whole); err != nil || string(got) != `{"text":"9007199254740993 3 -9223372036854775808 12.5"}` {
		t.Errorf("whole numbers: %s %v", got, err)
	}
	draft.Run = deploy(campaign.SMS, campaign.Content{Text: `{% assign a = "x" %}{% for i in contact.list %}{% for j in contact.list %}{% assign a = a | append: a %}{% endfor %}{% endfor %}{{ a }}`}, "+493012345")
	long := draft
	long.Payload = json.RawMessage(`{"contact": {"list": [` + strings.Repeat("1,", 99) + `1]}}`)
	if _, err := c.Compose(ctx, long); deed.CodeOf(err) != deed.Invalid || !strings.Contains(err.Error(), "template_error") {
		t.Errorf("a template that goes over its limits: %v", err)
	}
	if _, err := campaign.NewMessage(liquid.Engine, campaign.Content{Subject: "{{ name }}", Text: "{% include 'x' %}"}, campaign.MessageOptions{Channel: campaign.Email}); deed.CodeOf(err) != deed.Invalid || strings.Count(err.Error(), "template_error") != 2 {
		t.Errorf("templates that are wrong: %v", err)
	}
	other := campaign.NewComposer(db.NewPool(pgtest.Worker, 1), liquid.Engine)
	db.Exec(t, pgtest.Owner, `alter table deed.campaign_contents rename to away`)
	if _, err := other.Compose(ctx, draft); err == nil || deed.CodeOf(err) == deed.Invalid {
		t.Errorf("with a database that cannot say: %v", err)
	}
	db.Exec(t, pgtest.Owner, `alter table deed.away rename to campaign_contents`)
}

// What was made when all numbers were floating is made again byte for byte where they are small, but of what divides
// whole ones.
func TestEngine_SmallNumbersAreWrittenAsBefore(t *testing.T) {
	t.Parallel()
	object := json.RawMessage(`{"contact": {"zero": 0, "n": 7, "below": -3, "half": 0.5, "price": 12.50, "round": 7.0, "exp": 1e3, "tiny": 1e-7, "large": 9007199254740991, "huge": 1e21, "list": [3, 1.5, 2, 2.0], "text": "7"}}`)
	var floating map[string]any
	if err := json.Unmarshal(object, &floating); err != nil {
		t.Fatal(err)
	}
	whole, err := campaign.Data(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{
		"{{ contact.zero }} {{ contact.n }} {{ contact.below }} {{ contact.half }} {{ contact.price }} {{ contact.round }} {{ contact.exp }} {{ contact.tiny }} {{ contact.large }} {{ contact.huge }}",
		"{{ contact.n | plus: contact.below }} {{ contact.n | minus: 0.5 }} {{ contact.n | times: contact.price }} {{ contact.n | modulo: 2 }} {{ contact.below | modulo: contact.n }} {{ contact.below | abs }}",
		"{{ contact.n | divided_by: 2.0 }} {{ contact.price | divided_by: 2 }} {{ contact.price | round }} {{ contact.n | round: 1 }} {{ contact.n | ceil }} {{ contact.below | floor }}",
		`{{ contact.n | number }} {{ contact.exp | number: 2, ",", "." }} {{ contact.large | number: 0, "", " " }} {{ contact.zero | default: "none" }} {{ contact.n | append: "x" }}`,
		`{{ contact.list | sort | join: " " }} {{ contact.list | uniq | join: " " }} {{ contact.list | size }} {{ contact.list | first }}`,
		"{% for i in contact.list %}{{ i }}{% if i == 2 %}!{% endif %}{% if i > contact.zero %}+{% endif %}{% endfor %}",
		`{% if contact.n == 7 and contact.round == 7 and contact.n == contact.round %}same{% endif %}{% if contact.n == contact.text %}text{% endif %}{% if contact.zero %}zero{% endif %}`,
		"{% case contact.n %}{% when 7.0 %}seven{% else %}other{% endcase %}{% case contact.round %}{% when 7 %}seven{% else %}other{% endcase %}",
		`{% assign x = contact.n | plus: 1 %}{{ x }}{% capture y %}{{ contact.price }}{% endcapture %}{{ y }}`,
	} {
		tmpl, err := liquid.Engine(campaign.Plain, source, campaign.Names())
		if err != nil {
			t.Fatal(err)
		}
		before, err := tmpl.Render(t.Context(), floating)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		if now, err := tmpl.Render(t.Context(), whole); err != nil || now != before {
			t.Errorf("%s: %q %v, before %q", source, now, err, before)
		}
	}
}

// A template is given one JSON object, and nothing else.
func TestData_ErrNoObject(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "null", "[1]", "7", "{", "{} {}", "{}}", `{"a": 1e}`} {
		if data, err := campaign.Data(json.RawMessage(text)); deed.CodeOf(err) != deed.Invalid {
			t.Errorf("%s: %v %v", text, data, err)
		}
	}
}
