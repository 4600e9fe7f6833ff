package campaign

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/tenant"
)

// Channel is by what means a campaign reaches its audience, in the ledger's words.
type Channel string

// The channels that campaigns have.
const (
	Email  Channel = "email"
	SMS    Channel = "sms"
	Voice  Channel = "voice"
	Social Channel = "social"
	Chat   Channel = "chat"
)

// Content is what is said, as templates (docs/templates.md). Which of its texts are needed,
// the channel says: an e-mail has a subject, and a text or a page; a call a script, and its
// version; a post a text and an id; a message a text (C8).
type Content struct {
	// Asset is what the keys of e-mails and messages hold: in a run nobody gets one asset
	// twice. Default: the campaign's name.
	Asset string `json:"asset,omitempty"`
	// Variant tells contents of one asset apart. Default: none.
	Variant       string `json:"variant,omitempty"`
	Subject       string `json:"subject,omitempty"`
	Text          string `json:"text,omitempty"`
	HTML          string `json:"html,omitempty"`
	Script        string `json:"script,omitempty"`
	ScriptVersion string `json:"script_version,omitempty"`
	// Post is the id of a social post.
	Post string `json:"post,omitempty"`
}

// Campaign is where a content was put.
type Campaign struct {
	ID      string
	Content string // the content's id
}

// Scope is whose something is.
type Scope struct {
	// Tenant is for logins that cross tenants. Default: the one that db has set.
	Tenant *tenant.ID
	// Workspace divides a tenant. Default: the nil UUID.
	Workspace tenant.ID
	// By is who acts, for the audit log, where no [audit.Act] says so. Default: the login.
	By string
}

func (s Scope) tenant() any {
	if s.Tenant == nil {
		return nil
	}
	return s.Tenant.String()
}

// by is the first who is named, else who acts in this scope; nil: the login.
func (s Scope) by(named ...string) any {
	return sqlvalue.NullIfZero(cmp.Or(append(named, s.By)...))
}

// Put finds the campaign of a name, or makes it, and the content: the same content is the
// same row, another one a row of its own, and none ever changes. Errors: [deed.Invalid],
// [deed.Forbidden] without a tenant.
func Put(ctx context.Context, db deed.DB, scope Scope, name string, content Content) (c Campaign, err error) {
	const op = "put campaign"
	text, err := json.Marshal(content)
	if err != nil {
		return c, invalidf(op, "%w", err)
	}
	rows, err := db.Query(ctx, query.Put, name, string(text), scope.Workspace.String(), scope.tenant(), scope.by())
	if err == nil {
		c, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Campaign])
	}
	return c, wrap(op, err)
}
