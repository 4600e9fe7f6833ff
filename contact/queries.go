package contact

import (
	_ "embed"

	"github.com/deedhq/deed/internal/sqlfile"
)

//go:embed queries.sql
var queriesText string

// query holds the statements of queries.sql; read-only.
var query = sqlfile.Load[statements](queriesText)

// statements are those of queries.sql, in its order.
type statements struct {
	Upsert, Check, Merge, Unmerge, Contacts, Contact, Aliases, Identities, KnownAs, SetConsents, ConfirmConsent, Consents, Words, Conflicts, Erase,
	Erasures, ExportErasures, Leave string
}
