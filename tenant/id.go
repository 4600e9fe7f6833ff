// Package tenant names tenants and sets the one that a transaction acts for.
//
// Every table that carries tenants' data has forced row-level security keyed
// on the setting app.current_tenant_id. A login that holds deed_app sees
// and publishes only what belongs to the tenant that its transaction has set;
// with none set it sees the default tenant if the installation has no other
// one, and nothing otherwise.
package tenant

import (
	"fmt"

	"github.com/deedhq/deed/internal/uuid"
)

// ID is a tenant's UUID. The zero value is the default tenant.
type ID [16]byte

// Default is the tenant of everything that names none: the nil UUID.
var Default ID

// Parse reads a UUID in its 36-character form, in either case.
func Parse(s string) (ID, error) {
	id, err := uuid.Parse(s)
	if err != nil {
		return ID{}, fmt.Errorf("tenant %q: %w", s, err)
	}
	return ID(id), nil
}

// String returns the lower-case 36-character form.
func (id ID) String() string { return uuid.UUID(id).String() }

// MarshalText makes an ID a JSON string.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (id *ID) UnmarshalText(b []byte) error {
	parsed, err := Parse(string(b))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
