package campaign

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit/seal"
)

// proofFormat is what the first line of a signed proof says that it is.
const proofFormat = "deed campaign proof 1"

// ProvedRun is the run that a signed proof is of.
type ProvedRun struct {
	Format       string `json:"format"`
	Installation string `json:"installation"`
	Run          Run    `json:"run"`
	// ContentSHA256 is of what was said.
	ContentSHA256 []byte `json:"content_sha256"`
	// VariantsSHA256 are of each of its variants.
	VariantsSHA256 map[string][]byte `json:"variants_sha256,omitempty"`
}

// ProvedMember is what became of a member: nobody's address, and nothing that an erasure
// would take away.
type ProvedMember struct {
	N             int64      `json:"n,string"`
	Contact       string     `json:"contact_id"`
	Delivery      string     `json:"delivery_id,omitempty"`
	Status        string     `json:"status"`
	ProviderID    string     `json:"provider_message_id,omitempty"` // of what is made of a number, as WhatsApp's, the SHA-256
	RequestSHA256 []byte     `json:"request_sha256,omitempty"`
	FinishedAt    *time.Time `json:"finished_at,omitempty"`
	Variant       string     `json:"variant,omitempty"`
}

// Signature ends a signed proof.
type Signature struct {
	Counts map[string]int64 `json:"counts"` // of members, by their status
	SHA256 []byte           `json:"sha256"` // of the lines before this one
	// Seal is the newest of the audit log then, as [seal.Seal.Name] names it. "": there is none.
	Seal      string    `json:"audit_seal"`
	At        time.Time `json:"at"`
	Key       string    `json:"key"`
	Signature []byte    `json:"signature,omitempty"`
}

// signed is what the signature is over.
func (s Signature) signed() ([]byte, error) {
	s.Signature = nil
	return json.Marshal(s)
}

// Signed is what a signed proof proves.
type Signed struct {
	ProvedRun
	Signature
}

// purged says that there is nothing any more of which a proof could be made.
func purged(op, id string) error {
	return &deed.Error{Op: op, Code: deed.Conflict, Err: fmt.Errorf("the deliveries of run %s are purged: a proof is signed while they are there", id)}
}

// proofPage is of how many members a statement reads.
const proofPage = 1000

// Sign writes a proof of a run to w, for [CheckSigned]: the run, a line for each of its members,
// and the signature over all of it. It signs only a run that [Verify] finds to be launched: the error's code is
// [deed.Conflict] else.
func Sign(ctx context.Context, db deed.DB, id string, key ed25519.PrivateKey, w io.Writer) (s Signed, err error) {
	const op = "sign the proof of a run"
	p, err := Verify(ctx, db, id, 1)
	if err != nil {
		return s, err
	}
	if p.SealedAt != nil {
		return s, purged(op, id)
	}
	if !p.Launched() {
		return s, &deed.Error{Op: op, Code: deed.Conflict, Err: fmt.Errorf("run %s is %s, with findings of %d kinds: deed campaign verify says which", id, p.Status, len(p.Found))}
	}
	s.ProvedRun = ProvedRun{Format: proofFormat, Run: p.Run}
	s.Counts, s.Key = map[string]int64{}, seal.KeyName(key.Public().(ed25519.PublicKey))
	sum := sha256.New()
	out := io.MultiWriter(w, sum)
	rows, err := db.Query(ctx, query.Proved, id)
	if err == nil {
		s, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (o Signed, err error) {
			o = s
			return o, row.Scan(&o.Installation, &o.ContentSHA256, &o.Seal, &o.At, &o.VariantsSHA256)
		})
	}
	if err != nil {
		return s, wrap(op, err)
	}
	if err := proofLine(out, s.ProvedRun); err != nil {
		return s, err
	}
	if err := proveMembers(ctx, db, id, out, s.Counts); err != nil {
		return s, wrap(op, err)
	}
	if r, err := Find(ctx, db, id); err != nil || r.SealedAt != nil { // while it was written
		return s, cmp.Or(err, purged(op, id))
	}
	s.SHA256, s.At = sum.Sum(nil), s.At.UTC()
	over, err := s.signed()
	if err != nil {
		return s, err
	}
	s.Signature.Signature = ed25519.Sign(key, over)
	return s, proofLine(w, s.Signature)
}

// proofLine writes a line. What a provider has called a message may be anything.
func proofLine(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// CheckSigned reads what [Sign] has written, and says what it proves; it needs no database. The
// error's code is [deed.Invalid] where anything was changed, or none of the keys has signed it.
func CheckSigned(r io.Reader, keys ...ed25519.PublicKey) (s Signed, err error) {
	if s, err = checkSigned(r, keys); err != nil {
		return s, invalidf("check the proof of a run", "%w", err)
	}
	return s, nil
}

func checkSigned(r io.Reader, keys []ed25519.PublicKey) (s Signed, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	sum, counts := sha256.New(), map[string]int64{}
	var last []byte
	next := int64(0)
	for n := 0; lines.Scan(); n++ {
		if last != nil {
			if err := readLine(n, last, sum, &s, counts, &next); err != nil {
				return s, err
			}
		}
		last = bytes.Clone(lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return s, err
	}
	var again bytes.Buffer
	if s.Format != proofFormat || json.Unmarshal(last, &s.Signature) != nil || s.Signature.Signature == nil ||
		proofLine(&again, s.Signature) != nil || again.String() != string(last)+"\n" { // nothing stands beside what is signed
		return s, errors.New("it is no proof of a run, or was cut off")
	}
	over, err := s.signed()
	if err != nil {
		return s, err
	}
	signed := false
	for _, key := range keys {
		signed = signed || seal.KeyName(key) == s.Key && ed25519.Verify(key, over, s.Signature.Signature)
	}
	switch {
	case !signed:
		return s, fmt.Errorf("it is not signed with a key that was given: %s", s.Key)
	case !bytes.Equal(sum.Sum(nil), s.SHA256):
		return s, errors.New("it was changed since it was signed")
	case next != s.Run.Members:
		return s, fmt.Errorf("the run has %d members, and it has %d", s.Run.Members, next)
	}
	for status, n := range s.Counts {
		if counts[status] != n {
			return s, fmt.Errorf("it says %d %s, and has %d", n, status, counts[status])
		}
	}
	return s, nil
}

// readLine takes a line that is signed: the run, or the next member.
func readLine(n int, text []byte, sum hash.Hash, s *Signed, counts map[string]int64, next *int64) error {
	sum.Write(text)
	sum.Write([]byte("\n"))
	if n == 1 {
		if json.Unmarshal(text, &s.ProvedRun) != nil || s.Format != proofFormat {
			return errors.New("it is no proof of a run")
		}
		return nil
	}
	var m ProvedMember
	if json.Unmarshal(text, &m) != nil || m.N != *next+1 || m.Status == "" {
		return fmt.Errorf("member %d does not stand in its place", *next+1)
	}
	*next = m.N
	counts[m.Status]++
	return nil
}
