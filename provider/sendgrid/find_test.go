package sendgrid_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/catcher"
	"github.com/deedhq/deed/provider/providertest"
	"github.com/deedhq/deed/provider/sendgrid"
)

// impatient looks up sooner than SendGrid would know.
type impatient struct{ *sendgrid.Provider }

func (p impatient) Capabilities() delivery.Capabilities {
	c := p.Provider.Capabilities()
	c.SettleDelay = 50 * time.Millisecond
	return c
}

// shown is what an activity answers: what it was asked by, and what it shows.
type shown struct {
	query         string
	list, message string
}

// activity is an account whose answers to e-mails are lost, and which shows what is said of them;
// to first it says something else before.
func activity(t *testing.T, s shown, first int) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	var id atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			var e struct {
				Args map[string]string `json:"custom_args"`
			}
			_ = json.NewDecoder(r.Body).Decode(&e)
			id.Store(e.Args["deed_id"])
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		its := id.Load().(string)
		if asked.Add(1) == 1 && first != 0 {
			w.WriteHeader(first)
			return
		}
		text := s.message
		if r.URL.Path == "/v3/messages" {
			text = s.list
			if q := r.URL.Query(); q.Get("query") != strings.ReplaceAll(s.query, "ID", its) || q.Get("limit") != "10" || len(q) != 2 {
				t.Errorf("asks for %s", r.URL.RawQuery)
			}
		}
		fmt.Fprint(w, strings.ReplaceAll(text, "'ID'", "'"+its+"'"))
	}))
	t.Cleanup(server.Close)
	return server.URL, asked
}

// What proves an e-mail is that the activity shows it to its recipient with the delivery's id.
// Nothing else is taken for proof, and no silence for the opposite.
func TestFind(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/activity.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Source, Query string
		List, Message json.RawMessage
	}
	if err := json.Unmarshal(text, &fixture); err != nil || fixture.Source == "" {
		t.Fatal(err)
	}
	in := func(text json.RawMessage, old, new string) string {
		if !strings.Contains(string(text), old) {
			t.Fatalf("the fixture has no %s", old)
		}
		return strings.Replace(string(text), old, new, 1)
	}
	list, message := string(fixture.List), string(fixture.Message)
	for name, c := range map[string]struct {
		list, message string
		first         int // what the first question is answered
		off           bool
		found         bool
		asked         int64
	}{
		"its own":                  {list, message, 0, false, true, 2},
		"when it is there again":   {list, message, http.StatusTooManyRequests, false, true, 3},
		"after an error":           {list, message, http.StatusServiceUnavailable, false, true, 3},
		"among copies":             {in(fixture.List, `[`, `[{"msg_id":"other.0","to_email":"cc@example.org"},`), message, 0, false, true, 2},
		"nothing":                  {`{"messages":[]}`, message, 0, false, false, 1},
		"to another":               {in(fixture.List, "bob@example.org", "eve@example.org"), message, 0, false, false, 1},
		"the search was disobeyed": {list, in(fixture.Message, "'ID'", "'49a3999c-0ce1-4ea6-ab68-afcd6dc2e794'"), 0, false, false, 2},
		"without arguments":        {list, in(fixture.Message, `"{'deed_id': 'ID'}"`, "null"), 0, false, false, 2},
		"without an id":            {in(fixture.List, `"msg_id":"LRzXl_NHStOGhQ4kofSm_A.recvd-canary-1"`, `"msg_id":""`), message, 0, false, false, 1},
		"an account without it":    {list, message, http.StatusUnauthorized, false, false, 1},
		"a key without it":         {list, message, http.StatusForbidden, false, false, 1},
		"a search that is refused": {list, message, http.StatusBadRequest, false, false, 1},
		"no such thing":            {list, message, http.StatusNotFound, false, false, 1},
		"unasked":                  {list, message, 0, true, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			url, asked := activity(t, shown{fixture.Query, c.list, c.message}, c.first)
			h.Provider = impatient{provider(t, sendgrid.Options{APIKey: token, Endpoint: url, Activity: !c.off})}
			e := providertest.Deliver(t, h)
			if c.found && (e.SentAt == nil || e.ProviderMessageID != "LRzXl_NHStOGhQ4kofSm_A") || !c.found && e.HeldAt == nil || asked.Load() != c.asked {
				t.Errorf("%s as %q, asked %d times: %s %s", e.Status, e.ProviderMessageID, asked.Load(), e.LastError, e.DoubtReason)
			}
		})
	}
}

// A dry run says whether the activity may be searched, if it is to be.
func TestCheck_Activity(t *testing.T) {
	t.Parallel()
	for none, says := range map[bool]string{false: "it may be searched", true: "it may not be searched; buy"} {
		server := httptest.NewServer(&catcher.SendGrid{Mailbox: &catcher.Mailbox{}, APIKey: token, NoActivity: none})
		t.Cleanup(server.Close)
		checks := provider(t, sendgrid.Options{APIKey: token, Endpoint: server.URL, Activity: true}).Check(t.Context())
		if len(checks) != 3 || checks[2].OK == none || !strings.HasPrefix(checks[2].Info, says) {
			t.Errorf("%+v", checks)
		}
	}
}
