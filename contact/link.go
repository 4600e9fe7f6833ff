package contact

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/deedhq/deed/internal/signedlink"
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
