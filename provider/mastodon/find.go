package mastodon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/deedhq/deed/delivery"
	"github.com/deedhq/deed/internal/adapter"
	"github.com/deedhq/deed/internal/httpcall"
)

const (
	around    = 5 * time.Minute // by which the instance's clock may differ from ours
	pageSize  = "5"             // of long statuses as many as an answer has room for
	mostPages = 20
)

// Find looks through the account's own statuses since the first call, and takes the only one
// that says what the request says: its text, as HTML shows it, its spoiler, visibility and what
// it replies to. Of two, of too many to look through, or of one that HTML shows otherwise, such
// as with a mention of somebody elsewhere, it takes none.
func (p *Provider) Find(ctx context.Context, r delivery.Reservation) (delivery.Finding, error) {
	body, err := r.Request()
	if err != nil {
		return delivery.Finding{}, err
	}
	token, err := p.tokenOf(r.Recipient())
	if err != nil {
		return delivery.Finding{}, err
	}
	var stored status
	at := r.CalledAt()
	if json.Unmarshal(body, &stored) != nil || at.IsZero() || normal(stored.Status) == "" {
		return delivery.Finding{}, nil
	}
	me, err := p.whose(ctx, token, r.Recipient())
	if err != nil {
		return delivery.Finding{}, err
	}
	since := at.Add(-Window - around) // at is the last repeat's
	query := url.Values{"limit": {pageSize}, "exclude_reblogs": {"true"}}
	match := ""
	for range mostPages {
		var page []posted
		if err := p.get(ctx, token, p.base.JoinPath("api/v1/accounts", me, "statuses"), query, &page); err != nil {
			return delivery.Finding{}, err
		}
		all := len(page) == 0
		for _, one := range page {
			if one.CreatedAt.Before(since) {
				all = true
				break
			}
			if !one.says(stored) || one.ID == match {
				continue
			}
			if match != "" {
				return delivery.Finding{}, nil
			}
			match = one.ID
		}
		if all {
			return delivery.Finding{Found: match != "", MessageID: match, Alike: true}, nil
		}
		query.Set("max_id", page[len(page)-1].ID)
	}
	return delivery.Finding{}, nil
}

// posted is a status, as an instance shows it.
type posted struct {
	ID          string            `json:"id"`
	CreatedAt   time.Time         `json:"created_at"`
	Content     string            `json:"content"`
	SpoilerText string            `json:"spoiler_text"`
	Visibility  string            `json:"visibility"`
	InReplyToID string            `json:"in_reply_to_id"`
	Media       []json.RawMessage `json:"media_attachments"`
}

// says reports whether the request may have made the status.
func (s posted) says(request status) bool {
	text, ok := plain(s.Content)
	return ok && s.ID != "" && text == normal(request.Status) && strings.TrimSpace(s.SpoilerText) == strings.TrimSpace(request.SpoilerText) &&
		s.InReplyToID == request.InReplyToID && len(s.Media) == len(request.MediaIDs) && (request.Visibility == "" || s.Visibility == request.Visibility)
}

var (
	tag        = regexp.MustCompile(`</?([A-Za-z0-9]+)(?:\s[^<>]*)?/?>`)
	paragraphs = regexp.MustCompile(`\n{2,}`)
)

// plain is the text of which an instance has made a status's HTML; false if there is more in
// it than an instance makes of a text.
func plain(content string) (string, bool) {
	known := true
	text := tag.ReplaceAllStringFunc(content, func(t string) string {
		switch name := strings.ToLower(tag.FindStringSubmatch(t)[1]); {
		case name == "p" && strings.HasPrefix(t, "</"):
			return "\n\n"
		case name == "br":
			return "\n"
		case name == "p", name == "a", name == "span":
			return ""
		}
		known = false
		return ""
	})
	return normal(html.UnescapeString(text)), known && !strings.ContainsAny(text, "<>")
}

// normal is a text as HTML keeps it: with the same ends of lines and paragraphs.
func normal(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	return strings.TrimSpace(paragraphs.ReplaceAllString(text, "\n\n"))
}

// whose is the id of the account that a token is of, which must be the one that is named.
func (p *Provider) whose(ctx context.Context, token, account string) (string, error) {
	var me struct {
		ID       string `json:"id"`
		Username string `json:"username"`
	}
	if err := p.get(ctx, token, p.base.JoinPath("api/v1/accounts/verify_credentials"), nil, &me); err != nil {
		return "", err
	}
	if name := handle.FindStringSubmatch(account); me.ID == "" || name == nil || !strings.EqualFold(me.Username, name[1]) {
		return "", errors.New("mastodon: the token is of another account")
	}
	return me.ID, nil
}

// get asks for what changes nothing.
func (p *Provider) get(ctx context.Context, token string, target *url.URL, query url.Values, into any) error {
	target.RawQuery = query.Encode()
	a := httpcall.Get(ctx, p.transport, target, adapter.Bearer(token))
	switch {
	case a.Err != nil:
		return fmt.Errorf("mastodon: %w", a.Err)
	case a.Status != http.StatusOK:
		return problem(a.Status)
	case json.Unmarshal(a.Body, into) != nil:
		return errors.New("mastodon: what the instance says cannot be read")
	}
	return nil
}

// Check asks whose the tokens are, and how long a status may be.
func (p *Provider) Check(ctx context.Context) []delivery.Check {
	target := p.base.JoinPath("api/v2/instance")
	a := httpcall.Get(ctx, p.transport, target, adapter.Bearer(p.opts.Token))
	connected := delivery.Check{What: "connect to " + p.base.Host, OK: a.Err == nil, Info: "it answers"}
	if a.Err != nil {
		connected.Info = a.Err.Error()
		return []delivery.Check{connected}
	}
	checks := []delivery.Check{connected, p.checkToken(ctx, "token", p.opts.Token, p.opts.Account)}
	if p.opts.SandboxToken != "" {
		checks = append(checks, p.checkToken(ctx, "sandbox's token", p.opts.SandboxToken, p.opts.Sandbox))
	}
	var instance struct {
		Configuration struct {
			Statuses struct {
				MaxCharacters int `json:"max_characters"`
			} `json:"statuses"`
		} `json:"configuration"`
	}
	_ = json.Unmarshal(a.Body, &instance)
	if most := instance.Configuration.Statuses.MaxCharacters; a.Status == http.StatusOK && most > 0 {
		limit := delivery.Check{What: "longest status", OK: most >= p.opts.MaxCharacters, Info: fmt.Sprintf("%d characters", most)}
		if most != p.opts.MaxCharacters {
			limit.Info += fmt.Sprintf("; here up to %d are posted: set max_characters to %d", p.opts.MaxCharacters, most)
		}
		checks = append(checks, limit)
	}
	return checks
}

func (p *Provider) checkToken(ctx context.Context, what, token, account string) delivery.Check {
	_, err := p.whose(ctx, token, account)
	if err != nil {
		return delivery.Check{What: what, Info: strings.TrimPrefix(err.Error(), "mastodon: ") + "; make one of " + account + " that may read accounts and read and write statuses"}
	}
	return delivery.Check{What: what, OK: true, Info: "it is of " + account}
}
