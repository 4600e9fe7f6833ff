package seal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/deedhq/deed/internal/idempotency"
)

// Row is one of the audit log.
type Row struct {
	N           int64           `json:"n,string"`
	At          time.Time       `json:"at"`
	Tenant      *string         `json:"tenant_id,omitempty"`
	Run         *string         `json:"run_id,omitempty"`
	Actor       string          `json:"actor"`
	Login       string          `json:"login"`
	Action      string          `json:"action"`
	SubjectType string          `json:"subject_type"`
	SubjectID   *string         `json:"subject_id,omitempty"`
	From        *string         `json:"from_status,omitempty"`
	To          *string         `json:"to_status,omitempty"`
	Reason      *string         `json:"reason,omitempty"`
	Affected    int64           `json:"affected,string"`
	Details     json.RawMessage `json:"details,omitempty"`
	// Blinds are of the parts that an erasure may take away, by their names.
	Blinds map[string]Blind `json:"blinds,omitempty"`
}

// Blind is what a part of a row was sealed as: a hash over the salt and the part. The
// salt goes with the part.
type Blind struct {
	Salt []byte `json:"salt,omitempty"`
	Hash []byte `json:"sha256"`
}

// The parts of rows that an erasure, or the removal of a tenant, may take away.
const (
	reasonPart  = "reason"
	subjectPart = "subject"
	detailsPart = "details"
)

// erasable are those of the details: what others wrote (see schema/triggers.sql).
var erasable = []string{"last_error", "error", "source", "message_id"}

// aMark is what stands for an address that was taken away.
var aMark = regexp.MustCompile(`^[a-z]+:hmac:[0-9a-f]{32}$`)

// parts returns those of the row that may be taken away, and the details without theirs.
func (r *Row) parts() (parts map[string]string, rest *string, err error) {
	parts = map[string]string{}
	if r.Reason != nil {
		parts[reasonPart] = *r.Reason
	}
	if r.blindSubject() && r.SubjectID != nil {
		parts[subjectPart] = *r.SubjectID
	}
	if len(r.Details) == 0 {
		return parts, nil, nil
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(r.Details))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, nil, fmt.Errorf("its details are no JSON")
	}
	if object, ok := value.(map[string]any); ok {
		taken := map[string]any{}
		for _, key := range erasable {
			if v, is := object[key]; is {
				taken[key] = v
				delete(object, key)
			}
		}
		if len(taken) > 0 {
			parts[detailsPart] = canonical(taken)
		}
	}
	text := canonical(value)
	return parts, &text, nil
}

func (r *Row) blindSubject() bool {
	return r.SubjectType == "suppression" || r.SubjectType == "plan"
}

// canonical is one text for a JSON value, whatever the file has between its parts.
func canonical(value any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic(err) // it was decoded from JSON
	}
	return b.String()
}

// blind makes the blinds of the row.
func (r *Row) blind() error {
	parts, _, err := r.parts()
	if err != nil || len(parts) == 0 {
		return err
	}
	r.Blinds = map[string]Blind{}
	for name, part := range parts {
		salt := make([]byte, 16)
		if _, err := rand.Read(salt); err != nil {
			return err
		}
		r.Blinds[name] = Blind{salt, blindHash(salt, part)}
	}
	return nil
}

func blindHash(salt []byte, part string) []byte {
	h := sha256.New()
	h.Write(salt)
	h.Write([]byte(part))
	return h.Sum(nil)
}

// hash is the row's. Of the parts that may be taken away it has the blinds' hashes.
func (r *Row) hash() ([32]byte, error) {
	_, details, err := r.parts()
	if err != nil {
		return [32]byte{}, err
	}
	subject := r.SubjectID
	if r.blindSubject() {
		subject = nil
	}
	list := []string{
		"deed audit row 1", strconv.FormatInt(r.N, 10), idempotency.Time(r.At), r.Actor, r.Login, r.Action, r.SubjectType, strconv.FormatInt(r.Affected, 10),
	}
	for _, p := range []*string{r.Tenant, r.Run, subject, r.From, r.To, details} {
		list = append(list, present(p)...)
	}
	for _, name := range []string{reasonPart, subjectPart, detailsPart} {
		b, ok := r.Blinds[name]
		if !ok {
			list = append(list, present(nil)...)
			continue
		}
		text := string(b.Hash)
		list = append(list, present(&text)...)
	}
	return idempotency.Key(list...), nil
}

// present tells nothing from an empty text.
func present(p *string) []string {
	if p == nil {
		return []string{"0", ""}
	}
	return []string{"1", *p}
}

// opened says what of the parts that may be taken away is not what was sealed; erased is
// how many were taken away.
func (r *Row) opened() (erased int, err error) {
	parts, _, err := r.parts()
	if err != nil {
		return 0, err
	}
	for name := range parts {
		if _, ok := r.Blinds[name]; !ok {
			return 0, fmt.Errorf("its %s was not sealed", name)
		}
	}
	for name, b := range r.Blinds {
		part, there := parts[name]
		switch {
		case b.Salt != nil && there && bytes.Equal(blindHash(b.Salt, part), b.Hash):
		case b.Salt != nil:
			return 0, fmt.Errorf("its %s is not what was sealed", name)
		case !there && name != reasonPart, name == reasonPart && part == "erased", name == subjectPart && aMark.MatchString(part):
			erased++
		default:
			return 0, fmt.Errorf("its %s stands where one was erased", name)
		}
	}
	return erased, nil
}

// leaf is a row's in a seal.
func leaf(n int64, hash [32]byte) []byte {
	return slices.Concat(binary.BigEndian.AppendUint64(nil, uint64(n)), hash[:])
}

const leafSize = 40
