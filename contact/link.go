package contact

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/signedlink"
	"github.com/deedhq/deed/tenant"
)

// Errors of a link that somebody comes back with.
var (
	// ErrForged says that the link was not made with one of the secrets, or changed.
	ErrForged = signedlink.ErrForged
	// ErrExpired says that the link's time is over.
	ErrExpired = signedlink.ErrExpired
)

// LinkOptions say where links lead and how they are signed.
type LinkOptions struct {
	// URL is where the pages are, such as https://hooks.example.com.
	URL string
	// Secret signs: whsec_ and base64, or any text of 16 bytes at the least.
	Secret string
	// Previous are secrets that signed before: links made under them are good until
	// they expire.
	Previous []string
}

// Links makes and checks signed links. It is safe for concurrent use.
type Links struct {
	url    string
	signer *signedlink.Signer
}

// NewLinks returns what makes and checks links. Errors: [ErrInvalid].
func NewLinks(opts LinkOptions) (*Links, error) {
	u, err := url.Parse(opts.URL)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, invalidf("links", "the URL is none that begins with https:// or http:// and has no query")
	}
	signer, err := signedlink.New(append([]string{opts.Secret}, opts.Previous...)...)
	if err != nil {
		return nil, invalidf("links", "%v", err)
	}
	return &Links{url: strings.TrimRight(opts.URL, "/"), signer: signer}, nil
}

// Previous returns, for each of [LinkOptions.Previous], what makes the links that were made under it.
func (l *Links) Previous() []*Links {
	var list []*Links
	for _, signer := range l.signer.Previous() {
		list = append(list, &Links{url: l.url, signer: signer})
	}
	return list
}

// Asked is what a contact was asked for, and is to confirm.
type Asked struct {
	Tenant  string // the contact's, a UUID; "": the default one
	Contact string
	Channel string
	Purpose string
}

const confirmPath = "confirm"

// Confirm returns the link with which a contact confirms what it was asked for; it is
// good for the seven days that it has, or until an earlier time.
func (l *Links) Confirm(asked Asked, until time.Time) string {
	return l.url + "/" + confirmPath + "/" + l.signer.Sign(confirmPath, until, asked.Tenant, asked.Contact, asked.Channel, asked.Purpose)
}

// Confirmed returns what a link, or the part after its last /, confirms. Errors:
// [ErrForged], [ErrExpired].
func (l *Links) Confirmed(link string, at time.Time) (Asked, error) {
	f, err := l.signer.Check(confirmPath, link[strings.LastIndexByte(link, '/')+1:], at)
	if err == nil && len(f) != 4 {
		err = ErrForged
	}
	if err != nil {
		return Asked{}, fmt.Errorf("deed: confirm a consent: %w", err)
	}
	return Asked{Tenant: f[0], Contact: f[1], Channel: f[2], Purpose: f[3]}, nil
}

// Leaving is what somebody wants no more of, as the headers of an e-mail let them say.
type Leaving struct {
	Tenant   string // a UUID; "": the default one
	Channel  string
	Purpose  string
	Delivery string // the e-mail's, a UUID
	Contact  string // whom it was for, a UUID; "": it was not said
}

const leavePath = "u"

// Leave returns the link with which somebody leaves, with no address in it; "" where the pages
// are not at https, as RFC 8058 wants.
func (l *Links) Leave(from Leaving, until time.Time) string {
	if !strings.HasPrefix(l.url, "https://") {
		return ""
	}
	return l.url + "/" + leavePath + "/" + l.signer.Sign(leavePath, until, packed(from.Tenant), from.Channel, from.Purpose, packed(from.Delivery), packed(from.Contact))
}

// Left returns what somebody leaves who comes with a link, or the part after its last /.
// Errors: [ErrForged], [ErrExpired].
func (l *Links) Left(link string, at time.Time) (Leaving, error) {
	f, err := l.signer.Check(leavePath, link[strings.LastIndexByte(link, '/')+1:], at)
	if err == nil && len(f) != 5 {
		err = ErrForged
	}
	if err != nil {
		return Leaving{}, fmt.Errorf("deed: unsubscribe: %w", err)
	}
	return Leaving{Tenant: unpacked(f[0]), Channel: f[1], Purpose: f[2], Delivery: unpacked(f[3]), Contact: unpacked(f[4])}, nil
}

// packed is a UUID's 16 bytes, which make the shorter link; anything else as it is.
func packed(id string) string {
	if parsed, err := tenant.Parse(id); err == nil {
		return string(parsed[:])
	}
	return id
}

func unpacked(field string) string {
	if len(field) == len(tenant.ID{}) {
		return tenant.ID([]byte(field)).String()
	}
	return field
}

// Left is what became of somebody's wish to leave.
type Left string

// What became of it.
const (
	LeftNow    Left = "now"    // nothing more is sent to them for that
	LeftBefore Left = "before" // nothing was by then
	LeftNobody Left = "nobody" // neither the contact nor the delivery is known any more: nothing is sent to them either
)

// Leave notes that somebody wants no more of what a delivery was for, in one transaction: the
// contact revokes its consent, which suppresses its addresses for the purpose; the delivery's
// recipient is suppressed for it, unless it is one of those. Whatever was reserved before is
// skipped when its turn comes. It stands beside the delivery, once, as what a provider says of it does. A contact that was merged means the one it was merged into. The
// same again changes nothing. Errors: [ErrInvalid], [ErrNotFound] for a tenant that is not
// there, [ErrConflict] for one that was removed. Needs deed_worker.
func Leave(ctx context.Context, db DB, by string, from Leaving) (Left, error) {
	const op = "unsubscribe"
	ids := []string{from.Delivery}
	var of, owner any
	if from.Contact != "" {
		ids, of = append(ids, from.Contact), from.Contact
	}
	if from.Tenant != "" {
		ids, owner = append(ids, from.Tenant), from.Tenant
	}
	if err := checkIDs(op, ids...); err != nil {
		return "", err
	}
	rows, err := db.Query(ctx, query.Leave, from.Delivery, from.Channel, from.Purpose, of, owner, by)
	if err != nil {
		return "", wrap(op, err)
	}
	left, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	return Left(left), wrap(op, err)
}
