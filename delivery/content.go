package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed"
	"github.com/deedhq/deed/internal/sqlvalue"
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
	var id any
	if owner != nil {
		id = owner.String()
	}
	rows, err := db.Query(ctx, query.PutContent, content, sqlvalue.NullIfZero(mediaType), id)
	if err == nil {
		sha256, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
	}
	return sha256, deed.WrapError("put content", err)
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
