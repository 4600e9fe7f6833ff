package deed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/deedhq/deed/internal/errortext"
	"github.com/deedhq/deed/internal/header"
	"github.com/deedhq/deed/internal/limits"
	"github.com/deedhq/deed/internal/sqlvalue"
	"github.com/deedhq/deed/tenant"
)

// Published says where a message went.
type Published struct {
	ID  ID    // the message's identity outside the database
	Seq int64 // its number in the log

	// Repeated is true if the idempotency key had been used before: ID and Seq
	// are the first message's, and nothing was stored.
	Repeated bool
}

// DB is what is published through: a pgx.Tx; or a pool or a connection, with which
// the messages are a transaction of their own.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Publish stores msgs through db, in order and in one round trip; they exist if and
// only if its transaction commits. It returns one result a message.
//
// It stores all or nothing. A message that is refused leaves db usable, and
// the error's code says why: [Invalid] for an empty or over-long topic, an
// over-large payload, invalid JSON, a header that no sink could carry;
// [NotFound] for a topic that is not declared where topics must be;
// [Forbidden] for another tenant's message. Any other error is PostgreSQL's and
// has ended the transaction: under REPEATABLE READ and SERIALIZABLE that may be 40001, after
// which the transaction is to be run again.
func Publish(ctx context.Context, db DB, msgs ...Message) ([]Published, error) {
	st, err := NewStatement(ctx, msgs...)
	if err != nil || len(msgs) == 0 {
		return nil, err
	}
	rows, err := db.Query(ctx, st.SQL, st.Args...)
	if err != nil {
		return nil, WrapError("publish", err)
	}
	defer rows.Close()
	if tx, ok := db.(*Tx); ok {
		tx.of.otherwise = true
	}
	return st.Published(rows)
}

// A Statement publishes messages through a database layer that deed does not
// know: run SQL with Args in the business transaction and hand the rows to
// Published, before the transaction is committed: they say what was refused. Where the
// commit is sent behind it in one pipeline, take [Statement.Raising]. Package deedsql
// uses it for database/sql.
type Statement struct {
	SQL string
	// Args are what pgx encodes, for many messages as arrays; TextArgs are the
	// same as text, for other drivers.
	Args  []any
	count int
}

const publishOneSQL = `select 1, id, message_id::text, repeated, code, problem
from deed.publish_one(
  p_topic => $1::text, p_payload => $2::bytea, p_key => $3::text, p_type => $4::text, p_content_type => $5::text,
  p_headers => $6::text::jsonb, p_tenant => $7::text::uuid, p_idempotency_key => $8::text,
  p_process_after => $9::text::timestamptz, p_raise => false
)`

const publishManySQL = `select ordinal, id, message_id::text, repeated, code, problem
from deed.publish_many(
  p_topics => $1::text[], p_payloads => $2::bytea[], p_keys => $3::text[], p_types => $4::text[],
  p_content_types => $5::text[], p_headers => $6::text[]::jsonb[], p_tenants => $7::text[]::uuid[],
  p_idempotency_keys => $8::text[], p_process_after => $9::text[]::timestamptz[], p_raise => false
)`

// NewStatement checks msgs as [Publish] does and prepares the call.
func NewStatement(ctx context.Context, msgs ...Message) (Statement, error) {
	list, err := prepare(ctx, msgs)
	if err != nil {
		return Statement{}, err
	}
	return statementOf(list), nil
}

// prepared is a message as the statements take it: checked, with its payload
// encoded and its trace.
type prepared struct {
	topic    string
	payload  []byte
	optional [optionals]string // see Message.optional
}

// bytes is what its texts take.
func (p *prepared) bytes() int {
	n := len(p.topic) + len(p.payload)
	for _, text := range p.optional {
		n += len(text)
	}
	return n
}

// prepare checks messages, all or none.
func prepare(ctx context.Context, msgs []Message) ([]prepared, error) {
	list := make([]prepared, len(msgs))
	for i, m := range msgs {
		payload, err := m.payload()
		if err == nil {
			err = m.check()
		}
		var headers string
		if err == nil {
			headers, err = encodeHeaders(headersWithTrace(ctx, m.Headers))
		}
		if err != nil {
			return nil, invalidf("publish", "message %d of %d, topic %q: %w", i+1, len(msgs), errortext.Clip(m.Topic), err)
		}
		list[i] = prepared{m.Topic, payload, m.optional(headers)}
	}
	return list, nil
}

// statementOf is the call that publishes them.
func statementOf(list []prepared) Statement {
	if len(list) == 1 {
		args := []any{list[0].topic, list[0].payload}
		for c := range optionals {
			var value *string
			if list[0].optional[c] != "" {
				value = &list[0].optional[c]
			}
			args = append(args, value)
		}
		return Statement{SQL: publishOneSQL, Args: args, count: 1}
	}
	n := len(list)
	topics := make([]string, n)
	payloads := make([][]byte, n)
	var columns [optionals][]*string // one that no message uses stays a null array
	for i := range list {
		m := &list[i]
		topics[i], payloads[i] = m.topic, m.payload
		for c := range m.optional {
			if m.optional[c] == "" {
				continue
			}
			if columns[c] == nil {
				columns[c] = make([]*string, n)
			}
			columns[c][i] = &m.optional[c]
		}
	}
	args := []any{topics, payloads}
	for _, column := range columns {
		args = append(args, column)
	}
	return Statement{SQL: publishManySQL, Args: args, count: n}
}

// Raising returns the statement with which a message that the database refuses fails
// the transaction, and so a commit that is sent behind it unseen, as in a pgx.Batch:
// otherwise that would commit all else without the message.
func (s Statement) Raising() Statement {
	s.SQL = strings.Replace(s.SQL, "p_raise => false", "p_raise => true", 1)
	return s
}

// optionals is how many things a message may lack.
const optionals = 7

// optional returns what a message may lack, in the order of the statements'
// parameters, as text; "" is null.
func (m Message) optional(headers string) [optionals]string {
	o := [optionals]string{m.Key, m.Type, m.ContentType, headers, "", m.IdempotencyKey, ""}
	if m.Tenant != tenant.Default {
		o[4] = m.Tenant.String()
	}
	if !m.ProcessAfter.IsZero() {
		o[6] = m.ProcessAfter.UTC().Format(time.RFC3339Nano)
	}
	return o
}

// Published reads the statement's result, from pgx.Rows, *sql.Rows or their like. The
// caller closes rows.
func (s Statement) Published(rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
},
) ([]Published, error) {
	published := make([]Published, 0, s.count)
	var problems []error
	code := Internal
	for rows.Next() {
		var ordinal int
		var seq *int64
		var id, state, problem *string
		var repeated *bool
		if err := rows.Scan(&ordinal, &seq, &id, &repeated, &state, &problem); err != nil {
			return nil, WrapError("publish", err)
		}
		if state != nil {
			code = codeBySQLState[*state]
			problems = append(problems, fmt.Errorf("message %d of %d: %s", ordinal, s.count, sqlvalue.Deref(problem)))
			continue
		}
		parsed, err := ParseID(sqlvalue.Deref(id))
		if err != nil {
			return nil, err
		}
		published = append(published, Published{ID: parsed, Seq: *seq, Repeated: *repeated})
	}
	if err := rows.Err(); err != nil {
		return nil, WrapError("publish", err)
	}
	if problems != nil {
		return nil, &Error{Op: "publish", Code: code, Err: errors.Join(problems...)}
	}
	if len(published) != s.count {
		return nil, fmt.Errorf("deed: publish: the database answered for %d of %d messages", len(published), s.count)
	}
	return published, nil
}

// TextArgs returns Args as text that any driver can send.
func (s Statement) TextArgs() []any {
	args := make([]any, len(s.Args))
	for i, arg := range s.Args {
		switch v := arg.(type) {
		case string:
			args[i] = v
		case []byte:
			args[i] = fmt.Sprintf(`\x%x`, v)
		case *string:
			if v != nil {
				args[i] = *v
			}
		case []string:
			args[i] = arrayLiteral(len(v), func(i int) *string { return &v[i] })
		case [][]byte:
			args[i] = arrayLiteral(len(v), func(i int) *string { h := fmt.Sprintf(`\x%x`, v[i]); return &h })
		case []*string:
			if v != nil {
				args[i] = arrayLiteral(len(v), func(i int) *string { return v[i] })
			}
		}
	}
	return args
}

var arrayQuoter = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func arrayLiteral(n int, element func(int) *string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		if e := element(i); e == nil {
			b.WriteString("NULL")
		} else {
			b.WriteByte('"')
			b.WriteString(arrayQuoter.Replace(*e))
			b.WriteByte('"')
		}
	}
	b.WriteByte('}')
	return b.String()
}

func (m Message) payload() ([]byte, error) {
	payload := m.Payload
	encoded := payload == nil // valid, then: json.Marshal checks what it did not make
	if encoded {
		if m.Value == nil {
			return nil, errors.New("it has neither a payload nor a value")
		}
		var err error
		if payload, err = json.Marshal(m.Value); err != nil {
			return nil, fmt.Errorf("encode value as JSON: %w", err)
		}
	}
	if isJSON(m.ContentType) {
		switch {
		case !encoded && !json.Valid(payload):
			return nil, errors.New("payload is not valid JSON; give another content type if it is not meant to be")
		case !utf8.Valid(payload):
			return nil, errors.New("payload is not valid UTF-8; give another content type if it is not meant to be JSON")
		case bytes.Contains(payload, []byte(`\u0000`)) && hasNulEscape(payload):
			return nil, errors.New(`payload has the escape \u0000, which PostgreSQL's jsonb cannot hold`)
		}
	}
	return payload, nil
}

// hasNulEscape tells \u0000 from an escaped backslash before u0000.
func hasNulEscape(payload []byte) bool {
	for i := 0; i+5 < len(payload); i++ {
		if payload[i] != '\\' {
			continue
		}
		if string(payload[i:i+6]) == `\u0000` {
			return true
		}
		i++
	}
	return false
}

// check finds early what the database would refuse too, without a round trip.
func (m Message) check() error {
	if err := limits.Topic(m.Topic); err != nil {
		return err
	}
	for _, f := range []struct {
		name, value string
		most        int
	}{
		{"key", m.Key, 1000},
		{"type", m.Type, 200},
		{"idempotency key", m.IdempotencyKey, 200},
		{"content type", m.ContentType, 200},
	} {
		if len(f.value) > f.most {
			return fmt.Errorf("%s of %d bytes is over the limit of %d", f.name, len(f.value), f.most)
		}
		if !utf8.ValidString(f.value) || strings.ContainsRune(f.value, 0) {
			return fmt.Errorf("%s is not valid UTF-8 text", f.name)
		}
	}
	return nil
}

// encodeHeaders folds names to lower case and refuses what a sink could not
// carry; none are "".
func encodeHeaders(headers map[string]string) (string, error) {
	if len(headers) == 0 {
		return "", nil
	}
	folded := make(map[string]string, len(headers))
	for name, value := range headers {
		lower := strings.ToLower(name)
		switch {
		case len(lower) > 200 || !header.IsToken(lower):
			return "", fmt.Errorf("header %q is not a name that every sink can carry: use letters, digits and - . _", errortext.Clip(name))
		case strings.HasPrefix(lower, "deed-") || strings.HasPrefix(lower, "webhook-"):
			return "", fmt.Errorf("header %q is reserved: names from deed- and webhook- on are deed's own", errortext.Clip(name))
		case len(value) > 8192 || !utf8.ValidString(value) || strings.ContainsFunc(value, isControlRune):
			return "", fmt.Errorf("header %q has a value that HTTP cannot carry (control characters, invalid UTF-8, or over 8192 bytes)", errortext.Clip(name))
		}
		if _, twice := folded[lower]; twice {
			return "", fmt.Errorf("header %q is given twice, in different case", errortext.Clip(name))
		}
		folded[lower] = value
	}
	text, err := json.Marshal(folded)
	return string(text), err
}

func isControlRune(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	return media == "" || media == "application/json" || strings.HasSuffix(media, "+json")
}
