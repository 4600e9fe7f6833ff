// Package tenant names tenants and sets the one that a transaction acts for.
//
// Every table that carries tenants' data has forced row-level security keyed
// on the setting app.current_tenant_id. A login that holds deed_app sees
// and publishes only what belongs to the tenant that its transaction has set;
// with none set it sees the default tenant if the installation has no other
// one, and nothing otherwise.
package tenant

import (
	"encoding/hex"
	"fmt"
)

// ID is a tenant's UUID. The zero value is the default tenant.
type ID [16]byte

// Default is the tenant of everything that names none: the nil UUID.
var Default ID

// Parse reads a UUID in its 36-character form, in either case.
func Parse(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, fmt.Errorf("tenant %q: want a UUID such as 6f1c2d3e-0000-4000-8000-000000000001", s)
	}
	compact := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(id[:], []byte(compact)); err != nil {
		return ID{}, fmt.Errorf("tenant %q: want a UUID such as 6f1c2d3e-0000-4000-8000-000000000001", s)
	}
	return id, nil
}

// String returns the lower-case 36-character form.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	b[8] = '-'
	hex.Encode(b[9:13], id[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], id[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], id[8:10])
	b[23] = '-'
	hex.Encode(b[24:], id[10:])
	return string(b[:])
}

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
