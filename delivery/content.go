package delivery

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/audit"
	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/page"
	"github.com/deedhq/deed/tenant"
)

// PutContent keeps a file with db, and returns the SHA-256 by which attachments may name
// it ([Attachment.SHA256]) once db's transaction has committed, or in it: 64 characters
// of 0-9 a-f. It has 1 byte to 7 MiB. The same bytes again are the same file, with the media type
// that it was first put with; "" is application/octet-stream. A file goes that no unfinished delivery
// needs and that was neither put nor named for [Options.ContentRetention]; then it is to be put again.
// owner nil: the tenant that db has set. Errors: [deed.Invalid], [deed.Forbidden].
func PutContent(ctx context.Context, db deed.DB, owner *tenant.ID, content []byte, mediaType string) (sha256 string, err error) {
	if mediaType != "" && !isFileType(mediaType) {
		return "", invalidf("put content", "type is no media type of a file, such as application/pdf")
	}
	rows, err := db.Query(ctx, query.PutContent, content, sqlvalue.NullIfZero(mediaType), idOf(owner))
	if err == nil {
		sha256, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	}
	return sha256, deed.WrapError("put content", err)
}

// Content is a file that is kept ([PutContent]).
type Content struct {
	Tenant    string    `json:"tenant"`
	SHA256    string    `json:"sha256"`
	Size      int       `json:"size"` // bytes
	Type      string    `json:"type"`
	CreatedAt time.Time `json:"created_at"`
	UsedAt    time.Time `json:"used_at"` // when it was last put or named, to within a day
	// NeededBy are deliveries that need it, since they are unfinished or may be put back:
	// up to 10 of them, of one file that is asked for 100.
	NeededBy []string `json:"needed_by"`
}

// ContentFilter chooses files; zero fields choose all.
type ContentFilter struct {
	Tenant *tenant.ID
	SHA256 string
	Cursor string // [page.Of.Next] of the page before
	Limit  int    // default 100
}

// Contents lists the files that are kept, without their bytes, those that were put or named
// last first, to a worker or an operator. Errors: [deed.Invalid].
func Contents(ctx context.Context, db deed.DB, f ContentFilter) (list page.Of[Content], err error) {
	const op = "contents"
	f.Limit = cmp.Or(f.Limit, 100)
	if err := checkCount(op, "limit", f.Limit, 1); err != nil {
		return list, err
	}
	if f.SHA256 != "" && !isSHA256.MatchString(f.SHA256) {
		return list, invalidf(op, "sha256 is not 64 characters of 0-9 a-f")
	}
	at, ok := contentPlaceOf(f.Cursor)
	if !ok {
		return list, invalidf(op, "cursor %q is none of this list's", errortext.Clip(f.Cursor))
	}
	needed := 10
	if f.SHA256 != "" {
		needed = 100
	}
	rows, err := db.Query(ctx, query.LookAtContents, at.At, at.Tenant, at.SHA256, f.Limit, needed, idOf(f.Tenant), sqlvalue.NullIfZero(f.SHA256))
	if err != nil {
		return list, deed.WrapError(op, err)
	}
	list.Items, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Content, err error) {
		err = row.Scan(&c.Tenant, &c.SHA256, &c.Size, &c.Type, &c.CreatedAt, &c.UsedAt, &c.NeededBy)
		return c, err
	})
	if err != nil {
		return page.Of[Content]{}, deed.WrapError(op, err)
	}
	if n := len(list.Items); n == f.Limit {
		last := list.Items[n-1]
		list.Next = contentPlace{last.UsedAt, last.Tenant, last.SHA256}.cursor()
	}
	return list, nil
}

// ReadContent returns the bytes of a file that db may read. owner nil: any tenant's, since they
// are the same. Errors: [deed.Invalid], [deed.NotFound].
func ReadContent(ctx context.Context, db deed.DB, owner *tenant.ID, sha256 string) ([]byte, error) {
	const op = "read content"
	if !isSHA256.MatchString(sha256) {
		return nil, invalidf(op, "sha256 is not 64 characters of 0-9 a-f")
	}
	rows, err := db.Query(ctx, query.ContentBytes, sha256, idOf(owner))
	if err != nil {
		return nil, deed.WrapError(op, err)
	}
	content, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]byte])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, &deed.Error{Op: op, Code: deed.NotFound, Err: fmt.Errorf("there is no content %s", sha256)}
	}
	return content, deed.WrapError(op, err)
}

// RemoveContent takes away a file before its time, once db's transaction has committed; who names
// it then is told to put it again. owner nil: the tenant that db has set. Errors: [deed.NotFound];
// [deed.Conflict] while a delivery needs it that is unfinished or may be put back, or a reservation is
// naming it; [deed.Invalid], also unless act says who and why; [deed.Forbidden].
func RemoveContent(ctx context.Context, db deed.DB, owner *tenant.ID, sha256 string, act audit.Act) error {
	const op = "remove content"
	if !isSHA256.MatchString(sha256) {
		return invalidf(op, "sha256 is not 64 characters of 0-9 a-f")
	}
	rows, err := db.Query(ctx, query.RemoveContent, sha256, act.Reason, act.By, idOf(owner))
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	return deed.WrapError(op, err)
}

func idOf(owner *tenant.ID) any {
	if owner == nil {
		return nil
	}
	return owner.String()
}

// contentPlace is where a file stands in the list of all.
type contentPlace struct {
	At     time.Time
	Tenant string
	SHA256 string
}

func (p contentPlace) cursor() string {
	text, _ := json.Marshal(p) // a time and texts always can be
	return base64.RawURLEncoding.EncodeToString(text)
}

// contentPlaceOf reads a cursor; "" is the place before all.
func contentPlaceOf(cursor string) (p contentPlace, ok bool) {
	if cursor == "" {
		return contentPlace{At: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Tenant: tenant.Default.String()}, true
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || json.Unmarshal(text, &p) != nil {
		return contentPlace{}, false
	}
	_, err = tenant.Parse(p.Tenant)
	return p, err == nil && !p.At.IsZero() && isSHA256.MatchString(p.SHA256)
}

// content is a file that a delivery names.
type content struct {
	bytes []byte
	kind  string
}

// errNotRead says that the database did not answer: nothing is said of the delivery.
var errNotRead = errors.New("the files of its attachments could not be read")

// fill puts the files that an e-mail names into a draft of it.
func (s *source) fill(ctx context.Context, it *item, d *Draft) error {
	if d.Channel != Email || !bytes.Contains(bytes.ToLower(d.Payload), []byte(`"sha256"`)) {
		return nil
	}
	files, err := s.contents(ctx, it)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotRead, err)
	}
	if d.Payload, err = withContents(d.Payload, files); err != nil {
		return err
	}
	s.hand.weigh(it, len(d.Payload))
	return nil
}

// contents reads the files that a claimed delivery names.
func (s *source) contents(ctx context.Context, it *item) (map[string]content, error) {
	ctx, cancel := s.ledger.deadline(ctx)
	defer cancel()
	rows, err := s.ledger.pool.Query(ctx, query.DeliveryContents, it.id, it.claim)
	if err != nil {
		return nil, err
	}
	files := map[string]content{}
	var name string
	var file content
	_, err = pgx.ForEachRow(rows, []any{&name, &file.bytes, &file.kind}, func() error {
		files[name] = file
		file = content{}
		return nil
	})
	return files, err
}

// withContents is a payload whose attachments have the files that they name. Fields that
// it does not know stay, for whoever reads it to refuse.
func withContents(payload json.RawMessage, files map[string]content) (json.RawMessage, error) {
	var e map[string]json.RawMessage
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, payloadError(err)
	}
	if e["attachments"] == nil {
		return payload, nil // it says so in a text or a header
	}
	if err := json.Unmarshal(e["attachments"], &list); err != nil {
		return nil, payloadError(err)
	}
	set := func(a map[string]json.RawMessage, field string, v any) {
		a[field], _ = json.Marshal(v) // texts and bytes always can be
	}
	for i, a := range list {
		var name string
		if a["sha256"] == nil {
			continue
		}
		if err := json.Unmarshal(a["sha256"], &name); err != nil {
			return nil, payloadError(err)
		}
		file, ok := files[name]
		if !ok {
			return nil, fmt.Errorf("attachment %d: the content %s is gone", i+1, name)
		}
		delete(a, "sha256")
		set(a, "content", file.bytes)
		var kind string
		if a["type"] != nil && json.Unmarshal(a["type"], &kind) != nil {
			return nil, errors.New("payload of an e-mail: attachments.type is no text")
		}
		if kind == "" {
			set(a, "type", file.kind)
		}
	}
	set(e, "attachments", list)
	filled, err := json.Marshal(e)
	if err != nil {
		return nil, payloadError(err)
	}
	// Whatever an adapter could read as a name: it would send an empty file.
	var read struct{ Attachments []struct{ SHA256 string } }
	if err := json.Unmarshal(filled, &read); err != nil {
		return nil, payloadError(err)
	}
	for i, a := range read.Attachments {
		if a.SHA256 != "" {
			return nil, fmt.Errorf("attachment %d: sha256 is written otherwise, and names no file", i+1)
		}
	}
	return filled, nil
}
